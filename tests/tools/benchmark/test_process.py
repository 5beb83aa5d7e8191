"""A candidate's process: what it prints, raises or dies of never reaches the others."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from maskport.tools.benchmark.process import Child, make

REQUEST = {"engine": "onnxruntime", "source": "missing.onnx", "rows": False, "threads": 1, "io": {}}


def test_an_error_is_an_answer_and_the_process_lives_on() -> None:
    child = Child("worker")
    try:
        assert "missing.onnx" in child.ask(REQUEST)["error"]
        assert child.alive
        assert "missing.onnx" in child.ask(REQUEST)["error"]
    finally:
        child.close()
    assert not child.alive


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
def test_a_crash_is_told_by_its_signal() -> None:
    child = Child("worker")
    try:
        child.ask(REQUEST)
        os.kill(child.pid, signal.SIGSEGV)
        assert child.ask(REQUEST)["error"].startswith("the process ended with SIGSEGV")
    finally:
        child.close()


def test_a_process_that_never_answers_is_given_up() -> None:
    child = Child("worker")
    assert child.ask(patience=0.1)["error"] == "TimeoutError: no answer in 0 s"
    assert not child.alive


def test_a_file_that_can_not_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "in.onnx").write_bytes(b"no model")
    assert make("maskport", tmp_path / "in.onnx", tmp_path / "out.onnx")["error"]
    assert not (tmp_path / "out.onnx").exists()
