"""A failing case is made as small as it stays failing, and its script shows it with plain ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from maskport.tools import cli, validate
from maskport.tools.parity.repro import Failing
from typer.testing import CliRunner

from .tiny_models import tiny


def first_failure(candidate: bytes) -> Failing | None:
    found: list[Failing] = []
    validate(candidate, tiny(), on_failure=found.append)
    return found[0] if found else None


@pytest.mark.parametrize(
    ("fault", "sizes"),
    [
        # One real token beside one of padding.
        ("dropped", {"batch": 1, "seq": 2}),
        ("right padding", {"batch": 1, "seq": 2}),
        ("always nan", {"batch": 1, "seq": 1}),
        ("baked length", {"batch": 1, "seq": 1}),
    ],
)
def test_the_smallest_case_is_found(fault: str, sizes: dict[str, int]) -> None:
    failing = first_failure(tiny(fault))
    assert failing is not None
    shrunk = failing.shrunk()
    assert shrunk.output == "output"
    assert {label: size for label, size in shrunk.case.sizes.items() if isinstance(label, str)} == sizes
    assert shrunk.case.inputs["src"].shape == (*sizes.values(), 4)


def test_padding_that_has_no_part_in_it_is_gone() -> None:
    """A sum that is cut short fails whatever is padding."""
    failing = first_failure(tiny("cut"))
    assert failing is not None
    assert failing.shrunk().case.inputs["attention_mask"].all()


def test_a_right_candidate_has_no_failure() -> None:
    assert first_failure(tiny()) is None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("good", "dropped"):
        (tmp_path / f"{name}.onnx").write_bytes(tiny(None if name == "good" else name))
    return tmp_path


def test_the_command_writes_a_script_that_shows_it(folder: Path) -> None:
    done = CliRunner().invoke(cli.app, ["validate", "dropped.onnx", "--against", "good.onnx", "--repro", "case"])
    assert done.exit_code == 1
    assert "batch 1, seq 2, is in case/repro.py" in done.stderr
    script = folder / "case" / "repro.py"
    assert len(script.read_text().splitlines()) <= 10
    shown = subprocess.run([sys.executable, script.name], cwd=script.parent, capture_output=True, text=True, check=True)
    assert float(shown.stdout.rpartition(": ")[2]) > 0.01


def test_nothing_is_written_where_nothing_fails(folder: Path) -> None:
    done = CliRunner().invoke(cli.app, ["validate", "good.onnx", "--against", "good.onnx", "--repro", "case"])
    assert done.exit_code == 0
    assert not (folder / "case").exists()
