"""The run over many seeds: what it leaves in its file, and that it can raise an alarm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from maskport.tools.builtin import BUILTINS

from .false_alarms.__main__ import main, read
from .false_alarms.graphs import Graph, redraw
from .false_alarms.trial import trials


def test_an_untouched_graph_raises_none_and_is_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "alarms.jsonl"
    asked = ["--models", "encoder-packed", "--opsets", "23", "--full", "1", "--out", str(out)]
    assert main([*asked, "--seeds", "1"]) == 0
    first = out.read_text(encoding="utf-8")
    assert main([*asked, "--seeds", "2", "--graphs", str(tmp_path / "graphs")]) == 0
    assert out.read_text(encoding="utf-8").startswith(first)
    tried = read(out)
    assert [(trial.seed, trial.weights, trial.quick) for trial in tried] == [(0, 0, False), (1, 1, True)]
    assert all(trial.kept and trial.checks for trial in tried)
    assert [path.name for path in (tmp_path / "graphs").glob("*.onnx")] == ["encoder-packed-opset-23-weights-1.onnx"]
    last = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| encoder-packed")][-1]
    assert last.split("|")[2:5] == [" 23 ", " 2 ", " 1 "]
    assert last.split("|")[8] == " 0 "


def test_a_file_of_other_weights_than_its_module_raises_one(tmp_path: Path) -> None:
    graph = Graph("encoder", 23, 1)
    other = Graph("encoder", 23, 2).build(tmp_path)[2]
    other.rename(tmp_path / "encoder-opset-23-weights-1.onnx")
    (trial,) = trials(graph, tmp_path, [(0, True)])
    assert trial.alarms
    assert all(alarm.startswith("parity: ") for alarm in trial.alarms)


def test_a_file_that_is_none_raises_an_alarm_of_both(tmp_path: Path) -> None:
    (tmp_path / "encoder-opset-20-weights-0.onnx").write_bytes(b"no model")
    (trial,) = trials(Graph("encoder", 20, 0), tmp_path, [(0, True)])
    assert [alarm.split()[:2] for alarm in trial.alarms] == [["parity", "raised"], ["contracts", "raised"]]
    assert json.loads(json.dumps(vars(trial)))["kept"] == 0


def test_sets_of_weights_differ_and_are_as_wide() -> None:
    one, two, same = (BUILTINS["encoder"].build()[0] for _ in range(3))
    redraw(two, 1)
    redraw(same, 0)
    for (name, first), second, third in zip(one.named_parameters(), two.parameters(), same.parameters(), strict=True):
        assert torch.equal(first, third), name
        assert not torch.equal(first, second), name
        if first.ndim > 1:
            torch.testing.assert_close(first.std(), second.std(), rtol=0.1, atol=0)
