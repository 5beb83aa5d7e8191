"""One session, 64 threads, mixed shapes, numpy and torch: every answer is its own input's."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx.parser
import pytest
import torch
from maskport.runtime import InputError, Session

# A longer run: MASKPORT_THREADS_SECONDS=60.
SECONDS = float(os.environ.get("MASKPORT_THREADS_SECONDS", "3"))
THREADS = 64
MODEL = """
<ir_version: 8, opset_import: ["": 18]>
g (float[batch, seq, 8] x, int64[batch, seq] mask) => (float[batch, seq, 8] y, bool[batch, seq] real) {
    transposed = Transpose <perm = [0, 2, 1]> (x)
    scores = MatMul(x, transposed)
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64[1] {1}> ()
    low = Constant <value = float {-1e9}> ()
    equal = Equal(mask, zero)
    real = Not(equal)
    keys = Unsqueeze(real, one)
    masked = Where(keys, scores, low)
    weights = Softmax <axis = -1> (masked)
    y = MatMul(weights, x)
}
"""


def attention(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores = np.where(mask[:, None] != 0, x @ x.transpose(0, 2, 1), np.float32(-1e9))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ x


def test_every_answer_is_right() -> None:
    session = Session(onnx.parser.parse_model(MODEL).SerializeToString(), device="cpu", threads=1)
    end = time.monotonic() + SECONDS
    start = threading.Barrier(THREADS)

    def work(seed: int) -> int:
        draw = np.random.default_rng(seed)
        start.wait()
        runs = 0
        while time.monotonic() < end or runs < 3:
            batch, seq = draw.integers(1, 5), draw.integers(1, 34)
            x = draw.standard_normal((batch, seq, 8), dtype=np.float32)
            mask = draw.integers(0, 2, (batch, seq))
            mask[:, 0] = 1
            inputs = {"x": x, "mask": mask}
            if runs % 5 == 4:
                with pytest.raises(InputError, match=f"seq is {seq} in 'x'"):
                    session.run({**inputs, "mask": mask[:, :-1]})
            if runs % 2:
                tensors = session.run({name: torch.from_numpy(array) for name, array in inputs.items()})
                outputs = {name: tensor.numpy() for name, tensor in tensors.items()}
            else:
                outputs = session.run(inputs)
            np.testing.assert_allclose(outputs["y"], attention(x, mask), atol=2e-5)
            np.testing.assert_array_equal(outputs["real"], mask != 0)
            runs += 1
        return runs

    with ThreadPoolExecutor(THREADS) as pool:
        runs = list(pool.map(work, range(THREADS)))
    assert len(runs) == THREADS
    assert min(runs) >= 3
