"""`maskport validate` of models that no file may be like: a finding or one line, never a pass, and it lives on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from maskport.tools import cli
from typer.testing import CliRunner

from .hostile_models import made

FOUND, REFUSED, SAME = 1, 2, 0
# Models, and what comes of them alone, against themselves, and with planted faults. What runs, and is the same as
# itself wherever it was tried, is the same.
NOTHING_TO_PLANT = "no attention of the file can be written anew"
EXPECTED: dict[str, tuple[tuple[int, str], tuple[int, str], tuple[int, str]]] = {
    "no inputs": ((FOUND, "no tokens|nothing|not run"), (SAME, ""), (REFUSED, NOTHING_TO_PLANT)),
    "inputs without axes": ((FOUND, "not run"), (SAME, ""), (REFUSED, NOTHING_TO_PLANT)),
    "text": ((FOUND, "no tensor of numbers"), (REFUSED, "can't be drawn"), (FOUND, "no tensor of numbers")),
    "a sequence": ((FOUND, "no tensor of numbers"), (REFUSED, "can't be drawn"), (FOUND, "no tensor of numbers")),
    "an optional": ((FOUND, "no tensor of numbers"), (REFUSED, "can't be drawn"), (FOUND, "no tensor of numbers")),
    "a sequence comes out": ((FOUND, "is no tensor"), (FOUND, "is no tensor"), (FOUND, "is no tensor")),
    "an axis of no length": ((FOUND, "not run"), (FOUND, "not run"), (REFUSED, NOTHING_TO_PLANT)),
    "outputs of no length": ((FOUND, "not run"), (FOUND, "not run"), (REFUSED, NOTHING_TO_PLANT)),
    "branches of other ranks": ((FOUND, "not run"), (SAME, ""), (REFUSED, NOTHING_TO_PLANT)),
    "a rank that depends on numbers": ((FOUND, "lengths-free"), (FOUND, "lengths-free"), (FOUND, "can't be run")),
    "two gigabytes": ((FOUND, "2.0 GiB"), (REFUSED, "2.0 GiB"), (FOUND, "2.0 GiB")),
    "two gigabytes a row": ((FOUND, "4.0 GiB"), (REFUSED, "4.0 GiB"), (FOUND, "4.0 GiB")),
    "an operator that nobody has": ((REFUSED, "nobody"), (REFUSED, "nobody"), (REFUSED, "nobody")),
    "an input that is named twice": ((REFUSED, "Duplicate"), (REFUSED, "Duplicate"), (REFUSED, "Duplicate")),
    "a value that is computed twice": ((REFUSED, "Duplicate"), (REFUSED, "Duplicate"), (REFUSED, "Duplicate")),
    "an output that nobody computes": ((REFUSED, "does not exist"),) * 3,
    "an operator that the processor lacks": ((REFUSED, "LongformerAttention"),) * 3,
    "random numbers": ((FOUND, "without dropout"), (FOUND, "differ"), (REFUSED, "without dropout")),
    "weights that are no numbers": ((FOUND, "NaN"), (FOUND, "NaN"), (REFUSED, "NaN")),
    "no rank": ((FOUND, "no declared rank"), (REFUSED, "no declared rank"), (FOUND, "no declared rank")),
    "a map": ((REFUSED, "no ONNX model"),) * 3,
    "data that is missing": ((REFUSED, "misses its external data"),) * 3,
    "crash": ((FOUND, r"process with SIG\w+"), (FOUND, r"process with SIG\w+|with SIG\w+"), (REFUSED, "with SIG")),
    "crash at one length": ((FOUND, "with SIGFPE"), (FOUND, "with SIGFPE"), (REFUSED, "with SIGFPE")),
    "crash when it is loaded": ((REFUSED, "SIGFPE when it is loaded"),) * 3,
    "hang": ((FOUND, "takes longer than 1 s"), (FOUND, "takes longer"), (REFUSED, "takes longer than 1 s")),
    "memory": ((FOUND, "allocate memory"), (FOUND, "allocate memory"), (FOUND, "allocate memory")),
}
ASKED = {"alone": (), "against itself": ("--against", "model.onnx"), "planted": ("--self-test",)}
CASES = [
    pytest.param(name, ASKED[how], *wanted, id=f"{name}, {how}")
    for name, each in EXPECTED.items()
    for how, wanted in zip(ASKED, each, strict=True)
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own, as the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "asked", "code", "told"), CASES)
def test_it_is_told_in_plain_words(name: str, asked: tuple[str, ...], code: int, told: str, folder: Path) -> None:
    (folder / "model.onnx").write_bytes(made(name))
    done = CliRunner().invoke(cli.app, ["validate", "model.onnx", "--quick", "--timeout", "1", *asked])
    assert isinstance(done.exception, SystemExit | None)
    assert done.exit_code == code, done.output
    said = " ".join(done.output.split())
    assert re.search(told, said), said
    assert "Traceback" not in said
    assert "--verbose" not in said
    if code == REFUSED:
        assert done.stdout == ""
        assert done.stderr.splitlines()[-1].startswith("maskport: ")


def test_every_hostile_model_is_tried() -> None:
    from .hostile_models import NAMES

    assert set(EXPECTED) == set(NAMES)
