"""What a Session costs beyond ONNX Runtime: measured side by side, so that a loaded machine slows both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest
from maskport.runtime import Session

ROUNDS, TRIES = 400, 8
Inputs = dict[str, np.ndarray]
MANY = range(48)

# A model of a few microseconds, one of many inputs (a decoder's cache), and one that computes.
MODELS: dict[str, tuple[str, Inputs]] = {
    "small": (
        "g (float[b, s, 4] x, int64[b, s] mask, int64[b, s] positions) => (float[b, s, 4] y) { y = Abs(x) }",
        {
            "x": np.ones((8, 128, 4), np.float32),
            "mask": np.ones((8, 128), np.int64),
            "positions": np.ones((8, 128), np.int64),
        },
    ),
    "many inputs": (
        f"g ({', '.join(f'float[b, 4, past, 8] k{i}' for i in MANY)}) => "
        f"({', '.join(f'float[b, 4, past, 8] o{i}' for i in MANY)}) "
        f"{{ {' '.join(f'o{i} = Abs(k{i})' for i in MANY)} }}",
        {f"k{i}": np.ones((1, 4, 16, 8), np.float32) for i in MANY},
    ),
    "work": (
        "g (float[n, 256] x, float[256, 256] w) => (float[n, 256] y) { y = MatMul(x, w) }",
        {"x": np.ones((64, 256), np.float32), "w": np.ones((256, 256), np.float32)},
    ),
}


def medians(*runs: Callable[[], object]) -> list[float]:
    """Return the median seconds of each, run in turn."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for run, taken in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


@pytest.mark.parametrize("name", MODELS)
def test_a_run_costs_at_most_five_percent_or_thirty_microseconds_more(name: str) -> None:
    text, inputs = MODELS[name]
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}').SerializeToString()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    bare = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session = Session(model, device="cpu", threads=1)
    measured = []
    for _ in range(TRIES):
        ours, theirs = medians(lambda: session.run(inputs), lambda: bare.run(None, inputs))
        if ours - theirs <= max(0.05 * theirs, 30e-6):
            return
        measured.append(f"{ours * 1e6:.1f} us against {theirs * 1e6:.1f} us")
    pytest.fail(f"in none of {TRIES} tries: {', '.join(measured)}")
