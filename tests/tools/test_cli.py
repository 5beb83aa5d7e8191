"""The command line: exit codes and messages."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from maskport.export.errors import ExportError
from maskport.runtime.errors import ModelError
from maskport.tools import cli, demo
from maskport.tools.builtin import BUILTINS
from typer.testing import CliRunner

invoke = CliRunner().invoke


def test_help_and_version() -> None:
    assert "demo" in invoke(cli.app, ["--help"]).output
    shown = invoke(cli.app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, "maskport 0.1.0\n")


def test_no_arguments_show_the_help() -> None:
    assert invoke(cli.app, []).output == invoke(cli.app, ["--help"]).output


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["no-such-command"], "maskport: No such command 'no-such-command'. See 'maskport --help'."),
        (["--no-such-option"], "maskport: No such option: --no-such-option. See 'maskport --help'."),
        (["demo", "--no-such-option"], "maskport demo: No such option: --no-such-option. See 'maskport demo --help'."),
        (["demo", "more"], "maskport demo: Got unexpected extra argument(s) (more). See 'maskport demo --help'."),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(arguments: list[str], line: str) -> None:
    done = invoke(cli.app, arguments, prog_name="maskport")
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"{line}\n")


def test_models_lists_each_with_its_mask() -> None:
    done = invoke(cli.app, ["models"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    listed = json.loads(invoke(cli.app, ["models", "--json"]).stdout)["models"]
    assert [model["name"] for model in listed] == list(BUILTINS)
    assert all(model["name"] in done.stdout and model["mask"] in done.stdout for model in listed)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A built-in model exported by the command, and what the command printed."""
    path = tmp_path_factory.mktemp("exported") / "new" / "packed.onnx"
    done = invoke(cli.app, ["export", "encoder-packed", "-o", str(path), "--strip-traces", "--opset", "23"])
    assert (done.exit_code, done.stderr) == (0, "")
    return path, done.stdout


def test_export_tells_what_it_wrote_and_what_was_checked(exported: tuple[Path, str]) -> None:
    path, printed = exported
    model = onnx.load(path)
    assert model.opset_import[0].version == 23
    assert not any("stack_trace" in entry.key for node in model.graph.node for entry in node.metadata_props)
    words = " ".join(printed.split())
    assert re.match(r"wrote \S+packed.onnx, 0.\d MB, opset 23 input src ", words)
    assert "input segment_ids int64 [batch, seq] output output float32 [batch, seq, 64] checked " in words
    assert re.search(r"checked \d+ runs against the module, by onnxruntime .* valid rows \d.\de-0[67]$", words)


def test_validate_against_a_spec_and_write_junit(exported: tuple[Path, str], tmp_path: Path) -> None:
    junit = tmp_path / "new" / "junit.xml"
    arguments = ["validate", str(exported[0]), "--against", "encoder-packed", "--quick", "--junit", str(junit)]
    done = invoke(cli.app, arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    assert re.search(r"ok +mask-effect/segment_ids", done.stdout)
    assert done.stdout.endswith("agrees with encoder-packed.\n")
    assert ElementTree.parse(junit).getroot().attrib["failures"] == "0"
    done = invoke(cli.app, ["validate", str(exported[0]), "--against", "encoder", "--quick", "--json"])
    assert (done.exit_code, done.stderr) == (1, "")
    failed, not_run, *_ = json.loads(done.stdout)["contracts"]
    assert failed["why"] == "the candidate has lost input attention_mask; the candidate alone has input segment_ids"
    assert not_run["status"] == "not run"


def test_inputs_of_a_file_serve_a_module(exported: tuple[Path, str], tmp_path: Path) -> None:
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, src=np.ones((2, 3, 64), np.float32), segment_ids=np.array([[4, 4, 9], [4, 9, 9]]))
    arguments = ["validate", str(exported[0]), "--against", "encoder-packed", "--quick", "--inputs", str(inputs)]
    assert invoke(cli.app, arguments).exit_code == 0


def test_what_the_libraries_say_is_shown_with_verbose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def warns(folder: Path, screen: object) -> bool:
        warnings.warn("a library's warning", stacklevel=1)
        print("a library's print")
        return True

    monkeypatch.setattr(demo, "run", warns)
    assert invoke(cli.app, ["demo"]).output == ""
    done = invoke(cli.app, ["demo", "--verbose"])
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "a library's warning\na library's print\n"
    monkeypatch.setattr(demo, "run", lambda folder, screen: not warns(folder, screen))
    done = invoke(cli.app, ["demo"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "a library's warning" in done.stderr


@pytest.mark.parametrize(("agreed", "code"), [(True, 0), (False, 1)])
def test_the_demo_exits_with_its_verdict(
    agreed: bool, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders: list[Path] = []
    monkeypatch.setattr(demo, "run", lambda folder, screen: folders.append(folder) or agreed)
    assert invoke(cli.app, ["demo", "--folder", str(tmp_path)]).exit_code == code
    assert folders == [tmp_path]


def test_a_missing_package_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "NEEDS", {"no_such_package": "pip install no-such-package"})
    monkeypatch.setattr(sys, "argv", ["maskport", "demo"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr() == ("", "maskport: the demo needs no_such_package; pip install no-such-package\n")


@pytest.mark.parametrize("error", [ModelError("no model"), ExportError("no export")])
def test_expected_errors_are_messages(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(folder: Path, screen: object) -> bool:
        raise error

    monkeypatch.setattr(demo, "run", fail)
    monkeypatch.setattr(sys, "argv", ["maskport", "demo"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr().err == f"maskport: {error}\n"


FAULTY = """
import torch

class DropsItsMask(torch.nn.Module):
    def forward(self, x, attention_mask):
        return x * 2

def build():
    axes = {0: "batch", 1: "seq"}
    inputs = {"x": torch.randn(2, 5, 4), "attention_mask": torch.ones(2, 5, dtype=torch.int64)}
    return DropsItsMask(), inputs, {"x": axes, "attention_mask": axes}
"""


def test_a_file_that_is_not_the_module_is_a_finding(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "faulty.py").write_text(FAULTY)
    done = invoke(cli.app, ["export", f"{tmp_path}/faulty.py:build", "-o", str(tmp_path / "m.onnx")])
    assert done.exit_code == 1
    assert "'attention_mask' has no effect" in done.stderr
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize(("package", "extra"), [("onnxruntime", "cpu"), ("onnx_ir", "graph"), ("transformers", "hf")])
def test_a_missing_package_is_told_with_the_extra_that_brings_it(
    package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr("maskport.tools.demo.run", lambda *_: missing())
    done = invoke(cli.app, ["demo"])
    assert done.exit_code == 2
    assert done.stderr == f"maskport: this needs {package}, which is not installed; pip install 'maskport[{extra}]'\n"
