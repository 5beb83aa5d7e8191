"""Constants of a graph, as passes read and add them."""

from __future__ import annotations

__all__ = ["constant_tensor", "initializer", "is_bias", "is_constant", "like_with_width", "scalar"]

import numpy as np
import onnx_ir as ir

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)


def constant_tensor(value: ir.Value) -> ir.TensorProtocol:
    """Return what is in a constant."""
    tensor = ir.convenience.get_const_tensor(value)
    assert tensor is not None
    return tensor


def is_constant(value: ir.Value | None, rank: int) -> bool:
    """Whether a value is a floating constant of a rank, which no caller can change."""
    if value is None or value.is_graph_input():
        return False
    tensor = ir.convenience.get_const_tensor(value)
    return tensor is not None and tensor.dtype in FLOATS and len(tensor.shape) == rank


def is_bias(value: ir.Value | None, width: int) -> bool:
    """Whether a value is a constant [width]."""
    return value is not None and is_constant(value, 1) and tuple(constant_tensor(value).shape) == (width,)


def scalar(value: ir.Value | None) -> float | None:
    """Return a floating constant of one element, or None."""
    if value is None or not any(is_constant(value, rank) for rank in (0, 1)):
        return None
    tensor = constant_tensor(value)
    return float(tensor.numpy().reshape(())) if tensor.size == 1 else None


def initializer(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """Add a constant, by a name that is free."""
    while name in graph.initializers:
        name += "'"
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value


def like_with_width(value: ir.Value, other: ir.Value, width: int) -> ir.Value:
    """Give a value the type of another and its shape, but for the last axis."""
    value.type = None if other.dtype is None else ir.TensorType(other.dtype)
    if other.shape is not None:
        value.shape = ir.Shape([*other.shape[:-1], width])
    return value
