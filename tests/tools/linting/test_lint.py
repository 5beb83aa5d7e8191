"""The command: findings in each format, which rules run, exit codes, and what it needs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from maskport.export.errors import InspectError
from maskport.tools import cli, lint
from maskport.tools.errors import ToolError
from maskport.tools.linting.rules import RULES
from maskport.tools.linting.selection import Selection
from typer.testing import CliRunner, Result

from ...test_house import python
from ..attention_graphs import attention
from .faulty import CASES, body, graph, traced

FAULTY = CASES["MP302"].faulty["chosen"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["lint", *arguments], prog_name="maskport")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of faults, one without any, and one of notes; the working directory."""
    monkeypatch.chdir(tmp_path)
    onnx.save(FAULTY(), "faulty.onnx")
    onnx.save(CASES["MP402"].clean["an operator"](), "clean.onnx")
    onnx.save(attention(3, 5, 7), "notes.onnx")
    return tmp_path


def test_findings_end_in_exit_code_1_and_notes_do_not() -> None:
    done = run("faulty.onnx")
    assert done.exit_code == 1
    assert re.fullmatch(
        r"MP302 weak-fill  error\n"
        r"  'masked' \(from Where\) fills scores with -10, which is too small to mask\n    \S+\n\n"
        r"faulty.onnx: 1 error\n",
        done.stdout,
    )
    clean = run("clean.onnx", "--ignore", "MP502")
    assert (clean.exit_code, clean.stdout) == (0, "clean.onnx: nothing found\n")
    notes = run("notes.onnx")
    assert notes.exit_code == 0
    assert "    layers.0-2.self_attn\n\nnotes.onnx: 3 notes\n" in notes.stdout


def test_what_repairs_mend_is_said() -> None:
    onnx.save(CASES["MP101"].faulty["padding"](), "multiplied.onnx")
    assert "mended by maskport optimize --repair multiplied-mask\n" in run("multiplied.onnx").stdout
    assert lint("multiplied.onnx").findings[0].fixable == "multiplied-mask"


def test_json() -> None:
    done = run("faulty.onnx", "--format", "json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["ok"], told["model"], told["not_run"]) == (1, False, "faulty.onnx", {})
    assert [(f["code"], f["level"], f["fixable"]) for f in told["findings"]] == [("MP302", "error", None)]
    assert told == lint("faulty.onnx").to_json()
    assert run("faulty.onnx", "--json").stdout == done.stdout


TRACE = 'File "project/model.py", line 12, in forward\n    return x\n'


def test_github_annotations_stand_at_the_exporting_line() -> None:
    onnx.save(traced(TRACE)(), "traced.onnx")
    (line,) = run("traced.onnx", "--format", "github").stdout.splitlines()
    assert line.startswith("::notice file=project/model.py,title=MP402 attention-not-lowered,line=12::")
    assert lint("traced.onnx").findings[0].source == ("project/model.py", 12)
    onnx.save(CASES["MP102"].faulty["never read"](), "dropped.onnx")
    line, *_ = run("dropped.onnx", "--format", "github").stdout.splitlines()
    assert line == (
        "::error file=dropped.onnx,title=MP102 mask-without-effect::"
        "nothing of the mask attention_mask but its size reaches an output"
    )


def test_a_choice_of_rules() -> None:
    assert run("faulty.onnx", "--select", "mp1,MP2").exit_code == 0
    assert run("faulty.onnx", "--ignore", "MP3").exit_code == 0
    assert run("faulty.onnx", "--ignore", "MP3", "--select", "MP302").exit_code == 1
    assert [rule.code for rule in Selection(("MP1", "MP302"), ("MP10",)).rules()] == ["MP302"]
    assert [rule.code for rule in Selection().rules()] == list(RULES)


def test_pyproject_says_what_the_command_does_not() -> None:
    Path("pyproject.toml").write_text('[tool.maskport.lint]\nignore = ["MP302"]\n')
    assert run("faulty.onnx").exit_code == 0
    assert run("faulty.onnx", "--ignore", "MP1").exit_code == 1
    Path("pyproject.toml").write_text('[tool.maskport.lint]\nselect = ["MP4"]\n')
    assert "MP302" not in run("faulty.onnx").stdout
    assert run("faulty.onnx", "--select", "MP3").exit_code == 1


BAD = {
    "no such file": (["none.onnx"], "none.onnx is no file"),
    "no model": (["pyproject.toml"], "pyproject.toml is"),
    "no such rule": (["faulty.onnx", "--select", "MP9"], "no rule begins with 'MP9'; there are MP101, "),
    "no such format": (["faulty.onnx", "--format", "xml"], "--format is 'xml'; give one of text, json, github, sarif"),
    "nothing": ([], "there is no model to lint; give the path of an ONNX file, or --known"),
}


@pytest.mark.parametrize(("arguments", "says"), BAD.values(), ids=BAD)
def test_what_can_not_run_is_one_line_and_exit_code_2(arguments: Sequence[str], says: str) -> None:
    Path("pyproject.toml").write_text("[tool.other]\n")
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("maskport: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[tool.maskport.lint]\nselct = ["MP1"]', "has 'selct'; give select or ignore"),
        ('[tool.maskport.lint]\nselect = "MP1"', "select of [tool.maskport.lint] is 'MP1'; give a list of codes"),
        ("[tool.maskport]\nlint = 3", "is 3; give a table"),
        ("[tool.maskport.lint", "can't be read"),
    ],
)
def test_a_setting_that_can_not_be_meant(text: str, says: str) -> None:
    Path("pyproject.toml").write_text(text)
    done = run("faulty.onnx")
    assert done.exit_code == 2
    assert says in done.stderr


def test_damaged_metadata_is_an_error_and_no_pass() -> None:
    model = FAULTY()
    model.metadata_props.add(key="maskport.io", value="{")
    with pytest.raises(ToolError, match=r"maskport\.io is no JSON"):
        lint(model)
    with pytest.raises(InspectError):
        lint(b"no model")


def test_explain_tells_all_of_a_rule_by_code_and_by_name() -> None:
    for code, rule in RULES.items():
        done = CliRunner().invoke(cli.app, ["explain", code])
        assert done.exit_code == 0
        words = " ".join(done.stdout.split())
        assert all(text in words for text in (code, rule.name, rule.what, rule.why, rule.do))
        assert CliRunner().invoke(cli.app, ["explain", rule.name]).stdout == done.stdout
        assert json.loads(CliRunner().invoke(cli.app, ["explain", code.lower(), "--json"]).stdout)["code"] == code
    done = CliRunner().invoke(cli.app, ["explain", "MP999"])
    assert (done.exit_code, done.stdout) == (2, "")


def test_it_needs_neither_torch_nor_onnx_runtime_and_says_what_it_left_out() -> None:
    code = "from maskport.tools import lint\nprint(lint('faulty.onnx').to_json())"
    assert "'not_run': {}" in python(code, without=("torch", "transformers"))
    printed = python(code, without=("torch", "transformers", "onnxruntime"))
    assert "'MP302'" in printed
    assert "'not_run': {'MP406': 'it needs onnxruntime, which is not installed'}" in printed


def test_a_dozen_layers_take_seconds() -> None:
    import time

    model = attention(*range(3, 15))
    start = time.perf_counter()
    lint(model)
    # A tenth of that on an idle core.
    assert time.perf_counter() - start < 10


def test_messages_fit_a_line_and_name_what_they_are_about() -> None:
    for cases in CASES.values():
        for make in cases.faulty.values():
            for finding in lint(make()).findings:
                assert "\n" not in finding.message
                assert finding.message[:1] != " "
                assert len(finding.message) < 300


def test_a_name_of_the_graph_can_not_break_an_annotation() -> None:
    model = body("c8 = Cast<to=1>(m)\n key = Unsqueeze(c8, key_axes)", "masked = Mul(s, key)")()
    next(node for node in model.graph.node if node.output[0] == "masked").name = "a\n::error::b%"
    onnx.save(model, "named.onnx")
    lines = run("named.onnx", "--format", "github", "--select", "MP101").stdout.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("::error file=named.onnx,title=MP101 multiplied-mask::")


MALFORMED = ["Mul(q)", "Gather(q)", "Reshape(q)", "RMSNormalization(q)", "Add(q, q, q)"]


@pytest.mark.parametrize("node", MALFORMED)
def test_a_malformed_node_is_an_error_and_no_pass(node: str) -> None:
    onnx.save(graph(f"g (float[B,S] q) => (float[B,S] y) {{ z = {node} y = Softmax(z) }}"), "malformed.onnx")
    done = run("malformed.onnx", "--select", "MP3")
    assert (done.exit_code, done.stdout) == (2, "")
    assert re.fullmatch(
        r"maskport: malformed.onnx is no valid model: z \(\w+\) has [13] inputs; onnx.checker tells more\n", done.stderr
    )


def test_a_rule_that_fails_is_an_error_and_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(x: object) -> list[object]:
        raise KeyError("axis")

    monkeypatch.setitem(RULES, "MP101", replace(RULES["MP101"], find=fails))
    with pytest.raises(ToolError, match=r"can't be linted: MP101 fails at it \(KeyError 'axis'\)"):
        lint("clean.onnx")


ODD = {
    "no inputs": "g () => (float[1] y) { y = Constant<value_floats=[1.0]>() }",
    "no shapes": "g (float x, float[] z) => (float[] y) { y = Add(x, z) }",
    "strings": "g (string[B] x) => (string[B] y) { y = Identity(x) }",
    "branches": "g (float[B] x, bool c, float[B] attention_mask) => (float[B] y) { y = If(c) <then_branch = "
    "a () => (float[B] o) { o = Identity(x) }, else_branch = b () => (float[B] p) { p = Neg(attention_mask) }> }",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_models_are_looked_at(text: str) -> None:
    assert lint(graph(text)).findings == ()
