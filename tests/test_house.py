"""The house rules: arrows point one way, heavy imports are lazy, no file names a machine's folder."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from .tools.attention_graphs import attention

FOLDERS = ("models", "export", "runtime", "tools")
# What a folder may import of the others. "models.mask" stands for models/masks.py and its numpy-only siblings.
ARROWS = {
    "models": (),
    "export": ("models.mask",),
    "runtime": (),
    "tools": ("models", "export", "runtime"),
}
BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(name + " is blocked", name=name)

sys.meta_path.insert(0, Blocker())
"""


def imports(path: Path, root: Path) -> Iterator[str]:
    """Yield the modules of ours that a file imports from outside its own folder, as "folder.module"."""
    folder = path.relative_to(root).parts[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            depth = len(path.relative_to(root).parts) - node.level
            base = "" if node.level == 0 else ".".join(["maskport", *path.relative_to(root).parts[:depth]])
            module = ".".join(part for part in (base, node.module) if part)
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("maskport.") and name.split(".")[1] != folder:
                yield name.removeprefix("maskport.")


def python(code: str, *, without: tuple[str, ...] = ()) -> str:
    """Run code in a Python of its own, with the named packages blocked, and return what it printed."""
    if without:
        code = BLOCKER.format(names=set(without)) + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("folder", FOLDERS)
def test_arrows_point_one_way(folder: str, root: Path) -> None:
    wrong = {
        f"{path.name} imports {name}"
        for path in (root / folder).rglob("*.py")
        for name in imports(path, root)
        if not name.startswith(ARROWS[folder])
    }
    assert not wrong


def test_the_arrows_of_relative_and_absolute_imports_are_seen(tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir()
    path = tmp_path / "runtime" / "a.py"
    path.write_text(
        "from ..tools import x\nfrom . import y\nimport maskport.models.masks\nfrom maskport.export import z"
    )
    assert set(imports(path, tmp_path)) == {"tools.x", "models.masks", "export.z"}


@pytest.mark.parametrize(
    ("code", "without"),
    [
        ("from maskport.runtime import Session", ("torch", "onnx", "onnx_ir", "onnxscript", "typer", "rich")),
        ("from maskport.runtime import ModelError", ("onnxruntime", "torch")),
        (
            "from maskport.models import Causal, KeyPadding; Causal() & KeyPadding('m')",
            ("torch", "onnx", "onnxruntime"),
        ),
        ("from maskport.export import Exported, export", ("torch", "onnxruntime")),
        ("from maskport.export import ExportError", ("torch", "onnx_ir")),
        ("import maskport.tools.validation", ("torch", "transformers")),
        ("from maskport.export import inspect; from maskport.tools import diff", ("torch", "onnxruntime")),
    ],
)
def test_imports_need_no_more_than_they_must(code: str, without: tuple[str, ...]) -> None:
    python(code, without=without)


def test_export_without_torch_says_what_to_install() -> None:
    code = "from maskport.export import export, ExportError\ntry: export(None, {})\nexcept ExportError as e: print(e)"
    assert "pip install 'maskport[torch]'" in python(code, without=("torch",))


@pytest.mark.parametrize("command", ["inspect m.onnx --html m.html", "inspect m.onnx --json", "diff m.onnx m.onnx"])
def test_the_graph_commands_need_neither_torch_nor_onnx_runtime(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(attention(3), "m.onnx")
    code = f"import sys\nfrom maskport.tools.cli import main\nsys.argv = ['maskport', *{command.split()!r}]\nmain()"
    assert "attention" in python(code, without=("torch", "onnxruntime", "transformers"))


def test_a_graph_command_without_its_packages_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"a model")
    code = f"""
from pathlib import Path
from maskport.tools.errors import ToolError
from maskport.tools.reading import read_attention
try: read_attention(Path({str(tmp_path / "m.onnx")!r}))
except ToolError as error: print(error)"""
    assert "pip install 'maskport[graph]'" in python(code, without=("onnx_ir",))


def test_the_blocker_blocks() -> None:
    with pytest.raises(AssertionError, match="torch is blocked"):
        python("import torch", without=("torch",))


HELP = "import sys; sys.argv = ['maskport', '--help']\nfrom maskport.tools.cli import main\ntry: main()\nfinally: {}"


def test_help_imports_nothing_heavy() -> None:
    heavy = "print('heavy:', {'torch', 'onnx', 'onnx_ir', 'onnxruntime', 'numpy', 'transformers'} & set(sys.modules))"
    assert "heavy: set()" in python(HELP.format(heavy))


def test_help_is_quick() -> None:
    def seconds(code: str) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            python(code)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    # A loaded machine is slow at everything: what counts there is the time beyond the libraries' own.
    assert min(seconds(HELP.format("pass")), seconds(HELP.format("pass")) - seconds("import typer, rich")) < 0.5


def test_no_tracked_file_names_a_folder_of_a_machine(root: Path) -> None:
    if not (root / ".git").exists():
        pytest.skip("no checkout: there are no tracked files")
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True, check=True)
    folder = re.compile(r"(?<![\w.])/(?:home|Users|root|tmp|work|mnt|opt)/\w+|[A-Z]:\\\\?Users\\")
    found = {
        f"{name}: {match[0]}"
        for name in listed.stdout.split("\0")
        if name and (root / name).is_file()
        for match in folder.finditer((root / name).read_text(encoding="utf-8", errors="replace"))
    }
    assert not found
