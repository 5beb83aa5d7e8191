"""Operators of ONNX that onnx.reference computes in the element type of their inputs.

In float16 and bfloat16 each of their steps would round, a sum at every addend; kernels compute in float32.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import load_op

from .twin import rounded, widened

__all__ = ["IN_FLOAT32"]

NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))

# How many of the outputs are in the inputs' element type; the others stay in float32.
ROUNDED_OUTPUTS = {
    "Attention": 4,
    "Einsum": 1,
    "Gemm": 1,
    "LayerNormalization": 1,
    "LogSoftmax": 1,
    "MatMul": 1,
    "RMSNormalization": 1,
    "ReduceL2": 1,
    "ReduceLogSumExp": 1,
    "ReduceMean": 1,
    "ReduceSum": 1,
    "ReduceSumSquare": 1,
    "RotaryEmbedding": 1,
    "Softmax": 1,
}


class _InFloat32(OpRun):
    """onnx.reference's operator of the same name, given float32 for float16 and bfloat16."""

    op_domain = ""

    def __init__(self, onnx_node: onnx.NodeProto, run_params: dict[str, Any], schema: Any = None) -> None:
        super().__init__(onnx_node, run_params, schema)
        version = run_params["opsets"][""]
        inner = load_op("", onnx_node.op_type, version, evaluator_cls=ReferenceEvaluator)
        self._inner = inner(onnx_node, run_params)

    def run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        narrow = next((array.dtype for array in args if array is not None and array.dtype in NARROW), None)
        if narrow is None:
            outputs: tuple[Any, ...] = self._inner.run(*args, **kwargs)
            return outputs
        wide = [widened(array) if array is not None and array.dtype in NARROW else array for array in args]
        results = self._inner.run(*wide, **kwargs)
        count = ROUNDED_OUTPUTS[self.op_type]
        return tuple(rounded(result, narrow) if i < count else result for i, result in enumerate(results))

    def _run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        raise NotImplementedError("run calls the operator of onnx.reference")


IN_FLOAT32 = tuple(type(name, (_InFloat32,), {"__doc__": _InFloat32.__doc__}) for name in ROUNDED_OUTPUTS)
