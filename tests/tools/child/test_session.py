"""A model in a process of its own: the same numbers and errors, and nothing that it does ends this process."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime as ort
import pytest
from maskport.runtime import InputError, ModelError, Session
from maskport.tools.child.inference import ChildInference
from maskport.tools.child.session import ChildSession
from maskport.tools.errors import Crashed

from ..tiny_models import tiny
from .models import AT_LOAD, BOUNDLESS, ENDLESS, SEGFAULT, crashes_at, model

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX")
ROWS = {"x": np.ones((2, 3, 4), np.float32)}
MANY = """g (float[batch, seq, 64] x) => (float[batch, seq, 64] y, float[batch, 64] mean) <int64[1] axis = {1}>
    { flipped = Transpose <perm = [0, 2, 1]> (x)
      scores = MatMul (x, flipped)
      weights = Softmax (scores)
      mixed = MatMul (weights, x)
      tiny = Mul (mixed, mixed)
      y = Mul (tiny, tiny)
      mean = ReduceMean <keepdims = 0> (y, axis) }"""


def pid_of(session: ChildSession) -> int:
    """Number of the process in which a model is."""
    process = session._session._process
    assert process is not None
    return int(process.pid)


def test_numbers_and_what_is_told_of_the_file_are_those_of_a_session_here() -> None:
    here, child = Session(model(MANY), "cpu"), ChildSession(model(MANY), "cpu")
    assert (child.inputs, child.outputs, child.metadata) == (here.inputs, here.outputs, here.metadata)
    rng = np.random.default_rng(0)
    # The smallest become denormal numbers, which a session flushes to zero.
    for scale in (1.0, 1e-10):
        inputs = {"x": (rng.standard_normal((3, 17, 64)) * scale).astype(np.float32)}
        ours, theirs = here.run(inputs), child.run(inputs)
        assert {name: array.tobytes() for name, array in ours.items()} == {
            name: array.tobytes() for name, array in theirs.items()
        }


def test_some_outputs_alone_are_given() -> None:
    inputs = {"x": np.ones((1, 2, 64), np.float32)}
    assert list(ChildSession(model(MANY), "cpu").run(inputs, ["mean"])) == ["mean"]


def test_errors_are_those_of_a_session_here(tmp_path: Path) -> None:
    (tmp_path / "cut.onnx").write_bytes(tiny()[:200])
    for source in (tmp_path / "cut.onnx", tmp_path / "none.onnx", b"hello"):
        told = []
        for kind in (Session, ChildSession):
            with pytest.raises(ModelError) as caught:
                kind(source, "cpu")
            told.append(str(caught.value))
        assert told[0] == told[1]
    with pytest.raises(InputError, match="missing input"):
        ChildSession(model(MANY), "cpu").run({})
    with pytest.raises(ModelError, match="ONNX Runtime failed on x"):
        ChildSession(
            model("""g (float[n] x) => (float[m] y) <int64[1] seven = {7}> { y = Reshape (x, seven) }"""), "cpu"
        ).run({"x": np.ones(3, np.float32)})


def test_text_and_bfloat16_go_both_ways() -> None:
    options = ort.SessionOptions()
    text = ChildInference(
        model("g (string[n] x) => (string[n] y) { y = Identity (x) }"), options, ["CPUExecutionProvider"]
    )
    assert text.run(None, {"x": np.array(["a", "ü"], object)})[0].tolist() == ["a", "ü"]
    wide = ChildInference(
        model("g (bfloat16[n] x) => (bfloat16[n] y, float[n] z) { y = Identity (x) z = Cast <to = 1> (x) }"),
        options,
        ["CPUExecutionProvider"],
    )
    given = np.array([1.5, -2.0, 3e38], ml_dtypes.bfloat16)
    y, z = wide.run(None, {"x": given})
    assert (y.dtype, y.tobytes()) == (given.dtype, given.tobytes())
    np.testing.assert_array_equal(z, given.astype(np.float32))


def test_a_crash_is_an_error_that_names_the_signal_and_the_next_run_is_run() -> None:
    session = ChildSession(crashes_at(5), "cpu")
    for _ in range(2):
        with pytest.raises(Crashed, match=r"model ends the process with SIGFPE on x \[2, 5, 4\] \(ONNX Runtime .*CPU"):
            session.run({"x": np.ones((2, 5, 4), np.float32)})
        np.testing.assert_array_equal(session.run(ROWS)["y"], ROWS["x"])


def test_a_fault_of_a_kernel_is_told(tmp_path: Path) -> None:
    path = tmp_path / "attention.onnx"
    path.write_bytes(model(SEGFAULT))
    with pytest.raises(Crashed, match=r"attention.onnx ends the process with SIG\w+ on x \[2, 3, 8\]"):
        ChildSession(path, "cpu").run({"x": np.ones((2, 3, 8), np.float32)})


def test_a_crash_while_it_is_loaded_is_told() -> None:
    with pytest.raises(Crashed, match="SIGFPE when it is loaded"):
        ChildSession(model(AT_LOAD), "cpu")


def test_a_model_that_never_ends_is_ended_and_not_run_again() -> None:
    session = ChildSession(model(ENDLESS), "cpu", timeout=1.0)
    pid = pid_of(session)
    with pytest.raises(Crashed, match=r"takes longer than 1 s on x \[2, 3, 4\]"):
        session.run(ROWS)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    start = time.monotonic()
    with pytest.raises(Crashed, match="isn't run again"):
        session.run(ROWS)
    assert time.monotonic() - start < 0.5


def test_memory_without_end_is_an_error() -> None:
    session = ChildSession(model(BOUNDLESS), "cpu")
    with pytest.raises(ModelError, match="Failed to allocate memory"):
        session.run(ROWS)


def test_the_process_ends_with_its_session() -> None:
    session = ChildSession(crashes_at(5), "cpu")
    pid = pid_of(session)
    os.kill(pid, 0)
    del session
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("busy", [False, True])
def test_the_process_ends_with_its_parent(busy: bool, tmp_path: Path) -> None:
    path = tmp_path / "endless.onnx"
    path.write_bytes(model(ENDLESS))
    run = "session.run({'x': np.ones((1, 2, 4), np.float32)})" if busy else "time.sleep(60)"
    code = f"""
import time, numpy as np
from maskport.tools.child.session import ChildSession
session = ChildSession({str(path)!r}, "cpu")
print(session._session._process.pid, flush=True)
{run}
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(0.5)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
