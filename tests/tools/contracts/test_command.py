"""``maskport validate`` without a reference, with a declared mask, and with planted faults."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import Result
from maskport.tools import cli
from typer.testing import CliRunner

from .layers import layers


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(layers(count=1), "right.onnx")
    onnx.save(layers("left padding taken for right", count=1), "right-padded.onnx")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["validate", *arguments])


def asked(*arguments: str) -> dict[str, Any]:
    return json.loads(invoke(*arguments, "--json").stdout)


def test_without_a_reference_the_contracts_are_tried() -> None:
    done = invoke("right.onnx")
    assert done.exit_code == 0
    assert "right.onnx keeps what its masks promise." in done.stdout
    assert "causality" in done.stdout


def test_what_breaks_a_contract_exits_with_1_and_says_why() -> None:
    done = invoke("right-padded.onnx")
    assert done.exit_code == 1
    words = " ".join(done.stdout.split())
    assert "right-padded.onnx breaks what its masks promise." in words
    assert re.search(r"padding-invariance [0-9.]+: other tokens at padding move .x1. by", words)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_declared_mask_is_compared() -> None:
    assert invoke("right.onnx", "--expect", "causal & padding(attention_mask)").exit_code == 0
    found = asked("right.onnx", "--expect", "padding(attention_mask)")
    assert not found["ok"]
    assert found["contracts"][0]["name"] == "expected-mask/layers.0.self_attn"
    assert found["contracts"][0]["status"] == "failed"


def test_with_a_reference_both_are_tried() -> None:
    found = asked("right.onnx", "--against", "right.onnx", "--quick")
    assert found["ok"]
    assert found["cases"]
    assert "causality" in {contract["name"] for contract in found["contracts"]}


def test_planted_faults_are_told_in_a_table() -> None:
    done = invoke("right.onnx", "--self-test")
    assert done.exit_code == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["padding", "dropped", "-", "caught", "caught"] in lines
    assert ["scale", "left", "out", "caught", "caught", "-"] in lines
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_planted_faults_as_json() -> None:
    found = asked("right.onnx", "--self-test")
    assert found["ok"]
    assert "softcap after the mask" in found["not_applicable"]
    dropped = next(mutant for mutant in found["mutants"] if mutant["name"] == "padding dropped")
    assert dropped["caught"]
    assert dropped["one_batch"] is False
    assert dropped["site"] == "layers.0.self_attn"


def test_a_junit_report_has_the_contracts(tmp_path: Path) -> None:
    assert invoke("right-padded.onnx", "--junit", "report.xml").exit_code == 1
    assert 'name="padding-invariance"' in (tmp_path / "report.xml").read_text()


def test_a_file_that_agrees_and_breaks_a_contract_is_told_so() -> None:
    done = invoke("right-padded.onnx", "--against", "right-padded.onnx", "--quick")
    assert done.exit_code == 1
    assert done.stdout.endswith("right-padded.onnx agrees with right-padded.onnx, and breaks what its masks promise.\n")
