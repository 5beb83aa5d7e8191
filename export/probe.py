"""What the installed ONNX Runtime runs, found by running it: no version numbers."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

ROTARY = """
<ir_version: 10, opset_import: ["": 23]>
rotary (float[2, 1, 3, 4] x, float[1, 3, 2] cos, float[1, 3, 2] sin) => (float[2, 1, 3, 4] y) {
    y = RotaryEmbedding(x, cos, sin)
}
"""
RMS_NORM = """
<ir_version: 10, opset_import: ["": 23]>
norm (float16[2, 4] x, float[4] scale) => (float[2, 4] y) {
    y = RMSNormalization(x, scale)
}
"""
KEY_MASK = """
<ir_version: 10, opset_import: ["": 23]>
attend (float[1, 1, 2, 2] q, float[1, 1, 3, 2] k, bool[1, 1, 1, 3] m) => (float[1, 1, 2, 2] y) {
    y = Attention(q, k, k, m)
}
"""
FATAL_ONLY = 4


@functools.cache
def shares_rotary_caches() -> bool:
    """Whether ai.onnx RotaryEmbedding runs a batch of 2 with cos and sin of batch 1, and gives both rows the same.

    The operator's specification doesn't allow it, so the answer is no where ONNX Runtime is not installed.
    """
    angles = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    feeds = {"x": np.ones((2, 1, 3, 4), np.float32), "cos": np.cos(angles), "sin": np.sin(angles)}
    rows = _run(ROTARY, feeds)
    return rows is not None and np.array_equal(rows[0], rows[1])


@functools.cache
def mixes_rms_norm_types() -> bool:
    """Whether ai.onnx RMSNormalization runs a float16 input with a float32 scale, as its specification allows.

    The answer is no where ONNX Runtime is not installed.
    """
    y = _run(RMS_NORM, {"x": np.ones((2, 4), np.float16), "scale": np.full(4, 0.5, np.float32)})
    return y is not None and np.allclose(y, 0.5, atol=1e-3)


@functools.cache
def broadcasts_attention_masks() -> bool:
    """Whether ai.onnx Attention runs a mask [B, 1, 1, T] on more than one query, as its specification allows.

    The answer is no where ONNX Runtime is not installed.
    """
    k = np.array([[1, 0], [0, 1], [5, 5]], np.float32)[None, None]
    feeds = {"q": np.ones((1, 1, 2, 2), np.float32), "k": k, "m": np.array([True, True, False])[None, None, None]}
    y = _run(KEY_MASK, feeds)
    return y is not None and np.allclose(y, 0.5, atol=1e-6)


def _run(text: str, feeds: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Run a model of one output on the CPU; None if ONNX Runtime refuses it, or is not installed."""
    try:
        import onnxruntime as ort
    except ModuleNotFoundError:
        return None
    from onnx import parser

    options, run_options = ort.SessionOptions(), ort.RunOptions()
    options.log_severity_level = run_options.log_severity_level = FATAL_ONLY
    try:
        model = parser.parse_model(text).SerializeToString()
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, dict(feeds), run_options)[0])
    except Exception:  # Its errors have no common class but this.
        return None
