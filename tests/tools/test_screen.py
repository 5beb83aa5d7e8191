"""The screen: one line for a complaint, and nothing that a stream can't take."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from maskport.tools.screen import Screen


def ascii_screen(monkeypatch: pytest.MonkeyPatch) -> tuple[Screen, io.BytesIO, io.BytesIO]:
    """Return a screen whose streams take ASCII alone, and what they write to."""
    out, err = io.BytesIO(), io.BytesIO()
    for name, file in (("stdout", out), ("stderr", err)):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(file, encoding="ascii", write_through=True))
    return Screen(), out, err


def test_a_complaint_is_one_line_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, out, err = ascii_screen(monkeypatch)
    screen.complain("maskport run", "no [bold] file\n  " + "long " * 40)
    assert out.getvalue() == b""
    assert err.getvalue().decode() == f"maskport run: no [bold] file {'long ' * 39}long\n"


def test_characters_that_a_stream_lacks_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, out, _ = ascii_screen(monkeypatch)
    screen.out.print("■ ·")
    assert out.getvalue() == b"? ?\n"


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, out, err = ascii_screen(monkeypatch)
    with screen.progress("Work", 2) as advance:
        advance()
    assert (out.getvalue(), err.getvalue()) == (b"", b"")


def test_json_is_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, out, _ = ascii_screen(monkeypatch)
    screen.json({"a": [1]})
    assert json.loads(out.getvalue()) == {"a": [1]}
    with pytest.raises(ValueError, match="Out of range float values"):
        screen.json(float("nan"))


def test_a_reader_that_goes_away_ends_the_command_in_silence() -> None:
    script = (
        "from maskport.tools.screen import Screen\nscreen = Screen()\nfor _ in range(100_000): screen.out.print('x')"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 2
