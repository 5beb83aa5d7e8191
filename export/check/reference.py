"""The operators' reference, as a stand-in for ONNX Runtime where that has no kernel for bfloat16 on the CPU."""

from __future__ import annotations

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class MatMul(OpRun):
    """The product in float32, rounded: numpy's own of two bfloat16 arrays is left in float32, which ONNX refuses."""

    op_domain = ""

    def _run(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray]:
        return (np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype),)


def evaluator(model: onnx.ModelProto) -> ReferenceEvaluator:
    """Return what runs a model node by node in Python."""
    return ReferenceEvaluator(model, new_ops=[MatMul])
