"""Element types, as ONNX Runtime, ONNX, numpy and torch name them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class ElementType(NamedTuple):
    """One element type: ONNX's number, numpy's dtype (None where numpy has none) and torch's name."""

    onnx: int
    numpy: np.dtype[Any] | None
    torch: str


# By ONNX Runtime's name. The numbers are TensorProto.DataType of the ONNX specification.
ELEMENT_TYPES = {
    "tensor(float)": ElementType(1, np.dtype(np.float32), "torch.float32"),
    "tensor(uint8)": ElementType(2, np.dtype(np.uint8), "torch.uint8"),
    "tensor(int8)": ElementType(3, np.dtype(np.int8), "torch.int8"),
    "tensor(uint16)": ElementType(4, np.dtype(np.uint16), "torch.uint16"),
    "tensor(int16)": ElementType(5, np.dtype(np.int16), "torch.int16"),
    "tensor(int32)": ElementType(6, np.dtype(np.int32), "torch.int32"),
    "tensor(int64)": ElementType(7, np.dtype(np.int64), "torch.int64"),
    "tensor(bool)": ElementType(9, np.dtype(np.bool_), "torch.bool"),
    "tensor(float16)": ElementType(10, np.dtype(np.float16), "torch.float16"),
    "tensor(double)": ElementType(11, np.dtype(np.float64), "torch.float64"),
    "tensor(uint32)": ElementType(12, np.dtype(np.uint32), "torch.uint32"),
    "tensor(uint64)": ElementType(13, np.dtype(np.uint64), "torch.uint64"),
    "tensor(bfloat16)": ElementType(16, None, "torch.bfloat16"),
}
STRING = "tensor(string)"
DTYPES = {name: element.numpy for name, element in ELEMENT_TYPES.items() if element.numpy is not None}
