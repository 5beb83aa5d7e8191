"""Norms by the root mean square that are written in steps, as the operator."""

from __future__ import annotations

__all__ = ["RmsNormPass"]

from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from ..builder import like, take_over
from .chains import made_by, only_user, other_operand
from .constants import scalar

FLOAT, HALVES = ir.DataType.FLOAT, (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
# The first operator set with RMSNormalization.
OPSET = 23


@dataclass(frozen=True)
class _Norm:
    """A norm of x [..., E] with a scale [E], and the last of its nodes."""

    x: ir.Value
    scale: ir.Value
    epsilon: float
    result: ir.Value


class RmsNormPass(InPlacePass):
    """Write ``x / sqrt(mean(x * x) + epsilon) * scale`` as RMSNormalization, which computes it in float32.

    A norm of half-precision values that is written in float32, between two casts, becomes one of half-precision
    values: the operator casts inside.
    """

    def call(self, model: ir.Model) -> PassResult:
        """Fuse in place; the model is modified if any norm was."""
        if model.opset_imports.get("", 0) < OPSET:
            return PassResult(model, modified=False)
        found = [(node, norm) for node in model.graph.all_nodes() if (norm := _norm(node)) is not None]
        for node, norm in found:
            _fuse(node, norm)
        return PassResult(model, modified=bool(found))


def _norm(mean: ir.Node) -> _Norm | None:
    """Read a norm from the mean of its squares."""
    x = _squared(mean)
    add = only_user(mean.outputs[0], "Add") if x is not None else None
    if x is None or add is None:
        return None
    epsilon = scalar(other_operand(add, mean.outputs[0]))
    root = only_user(add.outputs[0], "Sqrt")
    if epsilon is None or root is None:
        return None
    over = only_user(root.outputs[0], "Reciprocal", "Div")
    if over is not None and over.op_type == "Reciprocal":
        normalized = only_user(over.outputs[0], "Mul")
        fits = normalized is not None and other_operand(normalized, over.outputs[0]) is x
    else:
        normalized, fits = over, over is not None and tuple(over.inputs) == (x, root.outputs[0])
    return _scaled(x, epsilon, normalized) if normalized is not None and fits else None


def _squared(mean: ir.Node) -> ir.Value | None:
    """Return what a node takes the mean square of, along the last axis."""
    if mean.domain != "" or mean.op_type != "ReduceMean" or not mean.attributes.get_int("keepdims", 1):
        return None
    axes = ir.convenience.get_const_tensor(mean.inputs[1]) if len(mean.inputs) > 1 and mean.inputs[1] else None
    squares = mean.inputs[0]
    square = made_by(squares, "Pow", "Mul")
    if axes is None or square is None or squares is None or only_user(squares, "ReduceMean") is None:
        return None
    x, y = square.inputs
    rank = None if x is None or x.shape is None else len(x.shape)
    if rank is None or axes.numpy().tolist() not in ([-1], [rank - 1]):
        return None
    return x if (scalar(y) == 2 if square.op_type == "Pow" else x is y) else None


def _scaled(x: ir.Value, epsilon: float, normalized: ir.Node) -> _Norm | None:
    """Read the scale, and the casts around the norm if there are any."""
    value, source = normalized.outputs[0], x
    cast = made_by(x, "Cast")
    if x.dtype == FLOAT and cast is not None and cast.inputs[0] is not None and cast.inputs[0].dtype in HALVES:
        source = cast.inputs[0]
        if (narrowed := only_user(value, "Cast")) is not None:
            value = narrowed.outputs[0]
    scaled = only_user(value, "Mul")
    scale = None if scaled is None else other_operand(scaled, value)
    if scaled is None or scale is None or x.shape is None or scale.shape is None:
        return None
    width = x.shape[-1]
    if not isinstance(width, int) or list(scale.shape) != [width] or scale.dtype != value.dtype:
        return None
    result = scaled.outputs[0]
    if value.dtype != source.dtype:
        narrowed = only_user(result, "Cast")
        if narrowed is None:
            return None
        result = narrowed.outputs[0]
    return _Norm(source, scale, epsilon, result) if result.dtype == source.dtype else None


def _fuse(mean: ir.Node, norm: _Norm) -> None:
    last, tape = norm.result.producer(), ir.tape.Tape()
    assert last is not None
    assert last.graph is not None
    scale = norm.scale
    if scale.dtype != norm.x.dtype:
        scale = like(tape.op("Cast", [scale], {"to": norm.x.dtype}), scale)
        scale.type = norm.x.type
    attributes = {"axis": -1, "epsilon": norm.epsilon, "stash_type": int(FLOAT)}
    made = like(tape.op("RMSNormalization", [norm.x, scale], attributes), norm.result)
    for node in tape.nodes:
        node.metadata_props.update(mean.metadata_props)
    last.graph.insert_before(last, tape.nodes)
    take_over(norm.result, made)
