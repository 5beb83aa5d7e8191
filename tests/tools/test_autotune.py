"""``maskport optimize --autotune``: what it takes, prints and keeps."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from maskport.export.tuning.answer import Answer
from maskport.tools import cli
from maskport.tools.optimize_table import timings
from typer.testing import CliRunner

from .attention_graphs import attention

SIZES = ("--autotune", "--shape", "1x3", "--shape", "2x5", "--fill", "0.6")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    onnx.save(attention(3, 3), "m.onnx")
    return tmp_path


def run(*arguments: str, output: str = "fast.onnx", code: int = 0) -> str:
    done = CliRunner().invoke(cli.app, ["optimize", "m.onnx", "-o", output, *arguments])
    assert done.exit_code == code, done.output
    return done.stderr if code else done.stdout


def test_what_was_measured_is_printed_and_a_second_run_reads_it() -> None:
    text = run(*SIZES)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "packing, 1x3: " in text
    assert "packing, 2x5: " in text
    found = json.loads(run(*SIZES, "--json", output="again.onnx"))["measured"]
    assert [answer["from_cache"] for answer in found] == [True] * len(found)
    (packing,) = (answer for answer in found if answer["what"] == "packing")
    assert packing["seconds"].keys() == {"1x3", "2x5"}
    assert packing["fastest"] in ("auto", "none")
    assert Path("fast.onnx").read_bytes() == Path("again.onnx").read_bytes()


def test_nothing_is_measured_unasked(folder: Path) -> None:
    assert json.loads(run("--json"))["measured"] == []
    assert not (folder / "cache").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--shape", "1x3"), "give --autotune, too"),
        (("--fill", "0.5"), "give --autotune, too"),
        (("--autotune", "--shape", "3"), "such as 16x128"),
        (("--autotune", "--fill", "2"), "the share of real tokens"),
        (("--autotune", "--target", "cuda"), "the target is cuda"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: tuple[str, ...], says: str, folder: Path) -> None:
    assert says in run(*arguments, code=2)
    assert not (folder / "fast.onnx").exists()


def test_the_fastest_stands_first() -> None:
    answer = Answer("packing", (), {"1x8": {"none": 0.002, "auto": 0.001}}, "auto", from_cache=True)
    assert timings(answer) == ["packing, 1x8 (kept from before): without padding 1 ms, with padding 2 ms"]


def test_a_file_that_was_optimized_is_not_measured() -> None:
    run()
    Path("m.onnx").write_bytes(Path("fast.onnx").read_bytes())
    assert json.loads(run(*SIZES, "--json"))["measured"] == []


def test_the_page_tells_it() -> None:
    run(*SIZES, "--html", "page.html")
    assert "packing, 2x5: " in Path("page.html").read_text()
