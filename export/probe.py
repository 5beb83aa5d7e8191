"""What the installed ONNX Runtime runs, found by running it: no version numbers."""

from __future__ import annotations

import functools

ROTARY = """
<ir_version: 10, opset_import: ["": 23]>
rotary (float[2, 1, 3, 4] x, float[1, 3, 2] cos, float[1, 3, 2] sin) => (float[2, 1, 3, 4] y) {
    y = RotaryEmbedding(x, cos, sin)
}
"""
FATAL_ONLY = 4


@functools.cache
def shares_rotary_caches() -> bool:
    """Whether ai.onnx RotaryEmbedding runs a batch of 2 with cos and sin of batch 1, and gives both rows the same.

    The operator's specification doesn't allow it, so the answer is no where ONNX Runtime is not installed.
    """
    try:
        import onnxruntime as ort
    except ModuleNotFoundError:
        return False
    import numpy as np
    from onnx import parser

    options, run_options = ort.SessionOptions(), ort.RunOptions()
    options.log_severity_level = run_options.log_severity_level = FATAL_ONLY
    angles = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    feeds = {"x": np.ones((2, 1, 3, 4), np.float32), "cos": np.cos(angles), "sin": np.sin(angles)}
    try:
        model = parser.parse_model(ROTARY).SerializeToString()
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        rows = np.asarray(session.run(None, feeds, run_options)[0])
    except Exception:  # Its errors have no common class but this.
        return False
    return bool(np.array_equal(rows[0], rows[1]))
