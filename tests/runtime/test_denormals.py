"""Denormals: flushed in every thread that runs a model, and in none afterwards."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx.parser
import pytest
from maskport.runtime import ModelError, Session, denormals

TEXT = '<ir_version: 8, opset_import: ["": 18]> g (float[n] x, float[n] y) => (float[n] z) { z = Add(x, y) }'
MODEL = onnx.parser.parse_model(TEXT).SerializeToString()
BITS = 71362  # 1e-40 as float32; written as bits, since a conversion may flush it

# A process of its own, as ONNX Runtime decides at a process's first session, here one that keeps denormals. The thread
# is older than both sessions, the arrays are long enough for ONNX Runtime's own threads.
CODE = """
import queue, sys, threading
import numpy as np
tasks, done = queue.Queue(), queue.Queue()
threading.Thread(target=lambda: done.put(tasks.get()()), daemon=True).start()
import onnxruntime
from maskport.runtime import Session
model, config = bytes.fromhex(sys.argv[1]), eval(sys.argv[2])
if sys.argv[3] == "bare first":
    onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
session = Session(model, device="cpu", threads=4, config=config)
tiny, zero = np.full(10**6, 71362, np.int32).view(np.float32), np.zeros(10**6, np.float32)
run = lambda: int(np.count_nonzero(session.run({"x": tiny, "y": zero})["z"].view(np.int32)))
tasks.put(run)
print(run(), done.get(timeout=60), np.count_nonzero((tiny + zero).view(np.int32)))
"""


def counts(config: object, first: str) -> list[int]:
    command = [sys.executable, "-c", CODE, MODEL.hex(), repr(config), first]
    return [int(word) for word in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


on_linux = pytest.mark.skipif(not denormals.SUPPORTED, reason="elsewhere ONNX Runtime decides by its first session")


@on_linux
@pytest.mark.parametrize("first", ["ours first", "bare first"])
def test_denormals_are_flushed_in_every_thread_and_kept_outside(first: str) -> None:
    assert counts(None, first) == [0, 0, 10**6]


@on_linux
def test_denormals_can_be_kept() -> None:
    assert counts({"session.set_denormal_as_zero": "0"}, "ours first") == [10**6] * 3


@on_linux
def test_a_failed_run_puts_the_thread_back() -> None:
    text = "g (float[n] x, int64[k] shape) => (float[m] y) { y = Reshape(x, shape) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}').SerializeToString()
    with pytest.raises(ModelError):
        Session(model, device="cpu").run({"x": np.ones(6, np.float32), "shape": np.array([4])})
    tiny = np.full(4, BITS, np.int32).view(np.float32)
    assert np.count_nonzero((tiny * np.float32(1)).view(np.int32)) == 4


def test_what_is_saved_is_put_back() -> None:
    tiny, one = np.full(4, BITS, np.int32).view(np.float32), np.ones(4, np.float32)
    before = denormals.flush()
    flushed = np.count_nonzero((tiny * one).view(np.int32))
    denormals.restore(before)
    assert flushed == (0 if denormals.SUPPORTED else 4)
    assert np.count_nonzero((tiny * one).view(np.int32)) == 4
