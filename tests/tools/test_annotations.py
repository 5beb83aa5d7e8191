"""Annotations of a pull request: by `maskport validate --format github`, and by the pytest plugin in a workflow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from click.testing import Result
from maskport.tools import cli
from maskport.tools.annotations import Annotation, at, source_in
from typer.testing import CliRunner

from .attention_graphs import attention
from .contracts.layers import layers
from .test_pytest_plugin import LOADED
from .tiny_models import tiny

pytest_plugins = ["pytester"]
TRACE = 'File "project/model.py", line {}, in forward\n    return x\n'
EXPECT = "window(5, 0) & padding(attention_mask)"


def traced(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose Softmax nodes say that they are from lines 10, 11 and so on."""
    for number, node in enumerate(node for node in model.graph.node if node.op_type == "Softmax"):
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=TRACE.format(10 + number))
    return model


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with small models and a source file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    onnx.save(traced(attention(3, 5)), "window.onnx")
    onnx.save(traced(attention(3, 6)), "wider.onnx")
    onnx.save(traced(layers("left padding taken for right", count=1)), "right-padded.onnx")
    Path("right.onnx").write_bytes(tiny())
    Path("dropped.onnx").write_bytes(tiny("dropped"))
    return tmp_path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["validate", *arguments])


def annotations(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if line.startswith("::")]


def test_what_is_text_stays_and_what_separates_is_escaped() -> None:
    told = str(Annotation("error", "a:b,c", "10% wrong\nnext: x, y", "a,b.onnx", 3))
    assert told == "::error file=a%2Cb.onnx,title=a%3Ab%2Cc,line=3::10%25 wrong%0Anext: x, y"


def test_a_line_is_told_from_the_repository(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ("project/model.py", 12)
    assert at(None, folder / "models/m.onnx") == ("models/m.onnx", None)
    assert at(source, "m.onnx") == ("project/model.py", 12)
    (folder / "src/project").mkdir(parents=True)
    (folder / "src/project/model.py").touch()
    assert at(source, "m.onnx") == ("src/project/model.py", 12)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder.parent))
    assert at(source, "m.onnx") == (f"{folder.name}/src/project/model.py", 12)
    assert at(None, "m.onnx") == (f"{folder.name}/m.onnx", None)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder / "src"))
    assert at(None, "m.onnx") == ("m.onnx", None)


def test_a_mask_that_is_not_the_declared_one_is_annotated_at_its_line() -> None:
    done = invoke("window.onnx", "--expect", EXPECT, "--format", "github")
    assert done.exit_code == 1
    (first, *_) = found = annotations(done.stdout)
    assert first.startswith(
        "::error file=project/model.py,title=expected-mask/layers.0.self_attn,line=10::window.onnx: the graph's mask is"
    )
    assert not any("layers.1" in line for line in found)
    # The text is there as well.
    assert "breaks what its masks promise" in done.stdout
    told = json.loads(invoke("window.onnx", "--expect", EXPECT, "--format", "json").stdout)
    assert told["contracts"][0]["source"] == {"file": "project/model.py", "line": 10}
    assert "source" not in told["contracts"][1]


def test_a_broken_promise_is_annotated_at_the_attention_that_does_not_keep_it() -> None:
    found = annotations(invoke("right-padded.onnx", "--format", "github").stdout)
    assert [line for line in found if line.startswith("::error file=project/model.py,title=padding-invariance,line=10")]


def test_what_differs_from_a_reference_is_one_annotation() -> None:
    done = invoke("dropped.onnx", "--against", "right.onnx", "--format", "github", "--quick")
    (parity, *others) = annotations(done.stdout)
    assert done.exit_code == 1
    assert parity.startswith(
        "::error file=dropped.onnx,title=parity::dropped.onnx differs from its reference%0Abatch=3"
    )
    assert not any("title=parity" in line for line in others)


def test_what_differs_is_annotated_where_it_first_does() -> None:
    model = onnx.load("window.onnx")
    for node in model.graph.node:
        if node.name.startswith("Softmax"):
            node.attribute[0].i = -2
    onnx.save(model, "mixed.onnx")
    (parity,) = annotations(invoke("mixed.onnx", "--against", "window.onnx", "--format", "github", "--quick").stdout)[
        :1
    ]
    assert parity.startswith(
        "::error file=project/model.py,title=parity,line=10::mixed.onnx differs from its reference"
    )
    assert "is computed by Softmax" in parity


def test_what_shows_nothing_is_annotated_and_what_is_right_is_not(folder: Path) -> None:
    assert annotations(invoke("window.onnx", "--quick", "--format", "github").stdout) == []
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[n] x) => (float[n] y) { y = Neg (x) }'
    )
    onnx.save(model, "plain.onnx")
    done = invoke("plain.onnx", "--format", "github")
    (line,) = annotations(done.stdout)
    assert done.exit_code == 1
    assert line.startswith("::error file=plain.onnx,title=nothing was shown::plain.onnx is not known to be right%0A")


def test_formats() -> None:
    text, as_json = invoke("right.onnx", "--quick"), invoke("right.onnx", "--quick", "--json")
    assert invoke("right.onnx", "--quick", "--format", "text").stdout == text.stdout
    assert json.loads(invoke("right.onnx", "--quick", "--format", "json").stdout) == json.loads(as_json.stdout)
    done = invoke("right.onnx", "--format", "xml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--format is 'xml'; give one of text, json, github" in done.stderr


def test_a_node_is_found_by_its_name() -> None:
    softmax = next(node.name for node in onnx.load("window.onnx").graph.node if node.op_type == "Softmax")
    assert source_in("window.onnx", softmax) == ("project/model.py", 10)
    assert source_in("window.onnx", "none") is None


MODELS = f"""
[tool.maskport.models.declared]
path = "window.onnx"
expect = "{EXPECT}"
unchanged = "wider.onnx"
lint = false
[tool.maskport.models.candidate]
path = "dropped.onnx"
against = "right.onnx"
quick = true
contracts = false
lint = false
[tool.maskport.models.gone]
path = "gone.onnx"
contracts = false
"""
TESTS = """
from maskport.tools.pytest_plugin import assert_mask_contracts, assert_lint_clean

def test_alone():
    assert_mask_contracts("right-padded.onnx")

def test_shown(subtests):
    assert_mask_contracts("right-padded.onnx", subtests=subtests)

def test_passes():
    assert_mask_contracts("wider.onnx")
"""
# What the workflow shows, by the beginnings of lines.
SHOWN = [
    "::error file=project/model.py,title=padding-invariance,line=10::right-padded.onnx: ",
    "::error file=project/model.py,title=expected-mask/layers.0.self_attn,line=10::window.onnx: ",
    "::error file=project/model.py,title=masks,line=11::the masks of window.onnx are not those of wider.onnx%0A",
    "::error file=dropped.onnx,title=parity::dropped.onnx differs from its reference%0A",
    "::error file=gone.onnx,title=gone::it could not be run: ",
]


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_failing_tests_are_annotated_in_a_workflow(
    pytester: pytest.Pytester, folder: Path, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    (pytester.path / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\n{MODELS}")
    for path in folder.glob("*.onnx"):
        (pytester.path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(pytester.path)
    pytester.makepyfile(TESTS)
    run: Callable[..., pytest.RunResult] = pytester.runpytest_subprocess if workers else pytester.runpytest
    if not workers:
        assert annotations(run(*LOADED, "-p", "no:xdist").stdout.str()) == []
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = run(*LOADED, *(workers or ("-p", "no:xdist")))
    found = annotations(result.stdout.str())
    assert len(found) == len(set(found))
    for start in SHOWN:
        assert [line for line in found if line.startswith(start)], start
    # Nothing else, but other contracts of the same two files.
    others = [line for line in found if not line.startswith(tuple(SHOWN))]
    assert all("right-padded.onnx: " in line or "::window.onnx: " in line for line in others)
