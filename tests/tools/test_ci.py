"""What a project puts in its CI: hooks, a workflow, files as they were committed, and nothing that needs PyTorch."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import typer.main
import yaml
from click.testing import Result
from maskport.tools import cli, each
from maskport.tools.committed import committed
from typer.testing import CliRunner

from ..test_docs import BLOCK
from ..test_house import FOLDERS, python
from .attention_graphs import attention
from .contracts.layers import layers
from .test_pytest_plugin import LOADED

EXPECT = "window(3, 0) & padding(attention_mask)"
PROJECT = f'[tool.maskport.models.model]\npath = "models/model.onnx"\nexpect = "{EXPECT}"\n'
# Its mask is another, a rule of the linter finds that, and so do the contracts.
FAULT = "mask dropped"


def git(*arguments: str) -> str:
    """Run git in the working directory as somebody."""
    person = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *person, *arguments], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit: a small model in a folder."""
    monkeypatch.chdir(tmp_path)
    for name in (each.FROM, "GITHUB_ACTIONS", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    git("init", "--quiet")
    Path("models").mkdir()
    onnx.save(attention(3), "models/model.onnx")
    Path("pyproject.toml").write_text(PROJECT)
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    return tmp_path


def diff(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["diff", *arguments])


def test_a_file_is_compared_with_the_committed_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert diff("models/model.onnx", "--git", "HEAD").exit_code == 0
    onnx.save(attention(5), "models/model.onnx")
    done = diff("models/model.onnx", "--git", "HEAD")
    assert done.exit_code == 1
    assert f"- {EXPECT}" in done.stdout
    git("commit", "--quiet", "--all", "--message", "second")
    assert diff("models/model.onnx", "--git", "HEAD").exit_code == 0
    assert json.loads(diff("models/model.onnx", "--git", "HEAD~1", "--json").stdout)["changed"]
    # As in a hook, where git says where it is, from another folder.
    monkeypatch.setenv("GIT_DIR", ".git")
    monkeypatch.setenv("GIT_INDEX_FILE", ".git/index")
    assert diff("models/model.onnx", "--git", "HEAD").exit_code == 0
    monkeypatch.chdir("models")
    assert diff("model.onnx", "--git", "HEAD~1").exit_code == 1


def test_what_is_new_has_nothing_to_compare_with(tmp_path_factory: pytest.TempPathFactory) -> None:
    onnx.save(attention(3), "new.onnx")
    done = diff("new.onnx", "--git", "HEAD")
    assert (done.exit_code, done.stdout) == (0, "new.onnx is new since HEAD: there is nothing to compare.\n")
    told = json.loads(diff("new.onnx", "--git", "HEAD", "--json").stdout)
    assert told == {"format": 1, "old": None, "new": "new.onnx", "changed": False}
    empty = tmp_path_factory.mktemp("empty") / "model.onnx"
    onnx.save(attention(3), empty)
    subprocess.run(["git", "init", "--quiet", empty.parent], check=True)
    assert diff(str(empty), "--git", "HEAD").exit_code == 0


def test_weights_beside_the_model_come_with_it() -> None:
    model = attention(3)
    weight = np.eye(8, 512, dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    model.graph.node.append(onnx.helper.make_node("MatMul", ["x1", "weight"], ["wide"]))
    model.graph.output[0].name = "wide"
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value = 512
    onnx.save(model, "models/model.onnx", save_as_external_data=True, location="model.onnx.data")
    git("add", ".")
    git("commit", "--quiet", "--message", "weights outside")
    assert Path("models/model.onnx.data").stat().st_size == weight.nbytes
    with committed(Path("models/model.onnx"), "HEAD") as copy:
        assert copy is not None
        assert copy.with_name("model.onnx.data").read_bytes() == weight.tobytes()
    assert not copy.parent.exists()
    assert diff("models/model.onnx", "--git", "HEAD").exit_code == 0
    assert diff("models/model.onnx", "--git", "HEAD~1").exit_code == 0


WRONG = {
    "no such revision": (["models/model.onnx", "--git", "v9"], "--git is 'v9', which is no revision of"),
    "an option": (["models/model.onnx", "--git=--all"], "--git is '--all', which is no revision of"),
    "no such file": (["gone.onnx", "--git", "HEAD"], "gone.onnx is no file; give the path of an ONNX file"),
    "two files": (
        ["models/model.onnx", "models/model.onnx", "--git", "HEAD"],
        "give two models to compare, or one and",
    ),
    "one file": (["models/model.onnx"], "give two models to compare, or one and --git REV"),
}


@pytest.mark.parametrize(("arguments", "says"), WRONG.values(), ids=WRONG)
def test_what_can_not_be_compared(arguments: list[str], says: str) -> None:
    done = diff(*arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert says in done.stderr


def test_a_file_outside_of_a_working_tree(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("outside") / "model.onnx"
    onnx.save(attention(3), path)
    done = diff(str(path), "--git", "HEAD")
    assert done.exit_code == 2
    assert "is in no working tree of git" in done.stderr


def hooks(root: Path) -> dict[str, dict[str, Any]]:
    return {hook["id"]: hook for hook in yaml.safe_load((root / ".pre-commit-hooks.yaml").read_text())}


def hook(root: Path, name: str, *arguments: str) -> int:
    """Run a hook as pre-commit does: its entry, then the arguments that are asked for, then the files."""
    start = ["python", "-m", "maskport.tools.each"]
    entry = shlex.split(hooks(root)[name]["entry"])
    assert entry[: len(start)] == start
    return each.main([*entry[len(start) :], *arguments])


def test_hooks_can_be_installed(root: Path) -> None:
    assert list(hooks(root)) == ["maskport-inspect", "maskport-lint", "maskport-validate", "maskport-diff"]
    for one in hooks(root).values():
        assert {"id", "name", "description", "entry", "language", "files"} <= one.keys()
        assert re.search(one["files"], "models/a.onnx")
        assert not re.search(one["files"], "models/a.onnx.data")
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {text for one in hooks(root).values() for text in one["additional_dependencies"]} == {".[graph,cpu]"}
    assert {"graph", "cpu"} <= extras.keys()


def test_hooks_pass_what_is_right_and_fail_what_is_not(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {
        "maskport-inspect": (),
        "maskport-lint": ("--ignore=MP402",),
        "maskport-validate": ("--quick",),
        "maskport-diff": (),
    }
    assert asked.keys() == hooks(root).keys()
    assert [hook(root, name, *options, "models/model.onnx") for name, options in asked.items()] == [0, 0, 0, 0]
    # Each of many files is looked at, and the worst counts.
    onnx.save(layers(FAULT, count=1), "models/model.onnx")
    onnx.save(attention(3), "right.onnx")
    files = ("models/model.onnx", "right.onnx")
    assert [hook(root, name, *options, *files) for name, options in asked.items()] == [0, 1, 1, 1]
    Path("damaged.onnx").write_bytes(b"no model")
    found = [hook(root, name, *options, "damaged.onnx", "right.onnx") for name, options in asked.items()]
    assert found == [2, 2, 2, 0]
    git("commit", "--quiet", "--all", "--message", "changed")
    assert hook(root, "maskport-diff", "models/model.onnx") == 0
    monkeypatch.setenv(each.FROM, "HEAD~1")
    assert hook(root, "maskport-diff", "models/model.onnx") == 1
    assert hook(root, "maskport-diff", "--git=HEAD", "models/model.onnx") == 0


def test_no_files_are_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert [each.main(given) for given in ([], ["lint"], ["--quick"], ["lint", "--quick"])] == [2, 2, 2, 2]
    assert capsys.readouterr().err.count("usage: python -m maskport.tools.each COMMAND") == 4


def workflow(root: Path) -> dict[str, Any]:
    return yaml.safe_load((root / "docs/ci/masks.yml").read_text())


def test_the_workflow_is_one(root: Path) -> None:
    told = workflow(root)
    # YAML 1.1 takes `on` for true.
    assert told[True].keys() == {"pull_request", "push"}
    assert told["permissions"] == {"contents": "read"}
    (job,) = told["jobs"].values()
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    assert job["steps"][0]["with"] == {"fetch-depth": 0, "lfs": True}


@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
def test_each_step_of_the_workflow(root: Path, folder: Path, right: bool) -> None:
    base = git("rev-parse", "HEAD")
    model = attention(3) if right else layers(FAULT, count=1)
    onnx.save(model, "models/model.onnx")
    git("commit", "--quiet", "--all", "--message", "now", "--allow-empty")
    steps = [step for step in workflow(root)["jobs"]["masks"]["steps"] if "maskport.tools" in step.get("run", "")]
    steps += [step for step in workflow(root)["jobs"]["masks"]["steps"] if "pytest pyproject" in step.get("run", "")]
    environment = {
        **os.environ,
        "BASE": base,
        "GITHUB_ACTIONS": "true",
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "PYTEST_PLUGINS": ",".join(name for name in LOADED if name != "-p"),
    }
    found, printed = [], ""
    for step in steps:
        done = subprocess.run(["bash", "-e", "-c", step["run"]], capture_output=True, text=True, env=environment)
        found.append(done.returncode)
        printed += done.stdout
    # A mask that is read and not the wanted one is no fault of `inspect`; xargs says 123 for any code.
    assert found == ([0] * 5 if right else [0, 123, 123, 123, 1])
    shown = re.findall(r"^::error file=models/model.onnx,title=(.*?)::", printed, re.MULTILINE)
    assert bool(shown) is not right
    assert right or {"MP102 mask-without-effect", "padding-invariance", "expected-mask/layers.0.self_attn"} <= set(
        shown
    )
    assert Path("masks.xml").is_file()


def commands(text: str) -> list[list[str]]:
    """Return the commands of ours in a text, each as its words."""
    found = re.findall(r"(?:python -m maskport\.tools\.each|(?<![\w./])maskport) ([a-z][^`|\n#]*)", text)
    return [shlex.split(line) for line in found]


def test_commands_on_the_page_exist(root: Path) -> None:
    page, steps = (root / "docs/ci.md").read_text(), workflow(root)["jobs"]["masks"]["steps"]
    group = typer.main.get_command(cli.app)
    found = commands(page) + [words for step in steps for words in commands(step.get("run", ""))]
    entries = [*shlex.split(" ".join(one["entry"] for one in hooks(root).values()))]
    known = group.commands  # type: ignore[attr-defined]
    for words in [words for words in found if words[0] != "COMMAND"]:
        options = {name for parameter in known[words[0]].params for name in parameter.opts}
        asked = {word.partition("=")[0] for word in words[1:] if word.startswith("-")}
        assert asked <= options, words
    assert {words[0] for words in found} >= {"inspect", "lint", "validate", "diff", "export"}
    assert {"inspect", "lint", "validate", "diff"} <= set(entries)


def test_the_hooks_on_the_page_exist(root: Path) -> None:
    (text,) = [source for kind, source in BLOCK.findall((root / "docs/ci.md").read_text()) if kind == "yaml"]
    (repository,) = yaml.safe_load(text)["repos"]
    assert [one["id"] for one in repository["hooks"]] == list(hooks(root))
    assert repository["rev"] == "v" + tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    for one in repository["hooks"]:
        assert all(argument.startswith("-") for argument in one.get("args", ()))


GRAPH = [
    ["inspect", "model.onnx", "--html", "page.html"],
    ["lint", "model.onnx"],
    ["explain", "MP101"],
    ["diff", "model.onnx", "model.onnx"],
    ["validate", "model.onnx", "--quick"],
    ["validate", "model.onnx", "--expect", EXPECT, "--quick", "--format", "github"],
    ["validate", "model.onnx", "--against", "model.onnx", "--quick", "--junit", "report.xml"],
    ["optimize", "model.onnx", "-o", "fast.onnx"],
    ["run", "model.onnx"],
    ["models"],
]
ALL = """
import contextlib, io, sys
from maskport.tools.cli import app
for words in {commands!r}:
    try: app(words)
    except SystemExit as end: print("code", end.code)
from maskport.tools import pytest_plugin as plugin
plugin.assert_mask_contracts("model.onnx"), plugin.assert_lint_clean("model.onnx")
plugin.assert_masks_unchanged("model.onnx", "model.onnx")
plugin.assert_onnx_parity("model.onnx", "model.onnx", quick=True)
print("asserted")
"""


def test_everything_on_graphs_does_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("models")
    printed = python(ALL.format(commands=GRAPH), without=("torch", "transformers"))
    assert re.findall(r"^code (\d)$", printed, re.MULTILINE) == ["0"] * len(GRAPH)
    assert printed.endswith("asserted\n")


def test_what_needs_torch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("models")
    code = "from maskport.tools.cli import app\ntry: app(['validate', 'model.onnx', '--against', 'encoder'])\n"
    code += "except SystemExit as end: print('code', end.code)"
    assert "code 2" in python(code, without=("torch",))


def test_every_folder_of_code_is_installed(root: Path) -> None:
    listed = set(tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {path.parent.relative_to(root) for name in FOLDERS for path in (root / name).rglob("*.py")}
    assert listed == {".".join(("maskport", *folder.parts)) for folder in folders}


def test_the_projects_own_models_are_tested(root: Path) -> None:
    models = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["maskport"]["models"]
    assert all(model["against"] == name and "expect" in model for name, model in models.items())
    assert "tests.own_models" in (root / "Makefile").read_text()
