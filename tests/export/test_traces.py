"""Stack traces: relative, without installed packages, or none."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
import torch
from maskport.export import export
from maskport.export.tracing.traces import TRACE_KEY, last_frame, module_packages, shorten_trace
from torch import nn

SITE = Path(sysconfig.get_path("purelib")).resolve()
PROJECT = Path.cwd() / "project"


def frame(path: Path | str, line: int, code: str = "return x") -> str:
    return f'File "{path}", line {line}, in forward\n    {code}\n'


TRACE = (
    frame(PROJECT / "models" / "mine.py", 3, "return self.layer(x)")
    + frame(SITE / "transformers" / "models" / "bert.py", 5)
    + frame(SITE / "torch" / "nn" / "linear.py", 7)
)


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        (set(), frame("models/mine.py", 3, "return self.layer(x)")),
        (
            {"transformers"},
            frame("models/mine.py", 3, "return self.layer(x)") + frame("transformers/models/bert.py", 5),
        ),
    ],
)
def test_frames_of_installed_packages_are_dropped_but_for_the_modules_own(packages: set[str], expected: str) -> None:
    assert shorten_trace(TRACE, [str(SITE), str(PROJECT)], packages) == expected


def test_a_file_outside_of_all_roots_is_named_alone() -> None:
    assert shorten_trace(frame(Path.cwd() / "x.py", 1), [str(PROJECT)]) == frame("x.py", 1)


def test_the_last_frame_is_told_in_one_line() -> None:
    assert last_frame(TRACE).endswith("linear.py:7 in forward: return x")
    assert last_frame("") == ""


def test_the_packages_of_a_module_are_those_of_its_parts() -> None:
    assert module_packages(nn.Sequential(nn.Linear(2, 2))) == set()

    class Mine(nn.Module):
        pass

    assert module_packages(nn.Sequential(Mine())) == {__name__.partition(".")[0]}


def test_traces_can_be_stripped() -> None:
    class Doubles(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    x = torch.ones(2, 3)
    with_traces, without = export(Doubles(), (x,)), export(Doubles(), (x,), strip_traces=True)
    assert any(TRACE_KEY in node.metadata_props for node in with_traces.model.graph)
    assert not any(TRACE_KEY in node.metadata_props for node in without.model.graph)
    assert __file__.rpartition("/")[2].encode() in with_traces.serialize()
    assert __file__.rpartition("/")[2].encode() not in without.serialize()
