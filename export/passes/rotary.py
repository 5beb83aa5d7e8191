"""Rotary embedding that is written in steps, as the operator.

Shapes: B batch, S sequence, T tokens, H heads, D size of a head.
"""

from __future__ import annotations

__all__ = ["RotaryPass"]

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from ..builder import Builder, like, take_over
from .chains import made_by, only_user
from .constants import scalar

# The first operator set with RotaryEmbedding.
OPSET = 23
HEADS_INSIDE = (0, 2, 1, 3)
# What keeps two halves of the last axis equal, whatever it does elsewhere; of two operands the other is one number.
KEEPS_HALVES = ("Cos", "Sin", "Cast", "Identity", "Neg")
WITH_A_NUMBER = ("Mul", "Add", "Div", "Sub")


@dataclass(frozen=True)
class _Rotation:
    """``x * cos + rotated(x) * sin``: x is [T, H, D] or [B, H, S, D], the tables have one head."""

    x: ir.Value
    cos: ir.Value
    sin: ir.Value
    result: ir.Value


class RotaryPass(InPlacePass):
    """Write ``x * cos + concat(-x2, x1) * sin`` as RotaryEmbedding, where both halves of the tables are the same.

    The tables, of half the size, are made once for all layers. For CUDA, where each step is a launch.
    """

    def call(self, model: ir.Model) -> PassResult:
        """Fuse in place; the model is modified if any rotation was."""
        if model.opset_imports.get("", 0) < OPSET:
            return PassResult(model, modified=False)
        found = [rotation for node in model.graph.all_nodes() if (rotation := _rotation(node)) is not None]
        for rotation in found:
            _fuse(rotation)
        return PassResult(model, modified=bool(found))


def _rotation(add: ir.Node) -> _Rotation | None:
    if add.domain != "" or add.op_type != "Add":
        return None
    for left, right in (add.inputs, add.inputs[::-1]):
        scaled, turned = made_by(left, "Mul"), made_by(right, "Mul")
        if scaled is None or turned is None or only_user(turned.outputs[0], "Add") is not add:
            continue
        for rotated, sin in (turned.inputs, turned.inputs[::-1]):
            x = _rotated(rotated)
            if x is None or sin is None or x not in scaled.inputs:
                continue
            cos = scaled.inputs[1] if scaled.inputs[0] is x else scaled.inputs[0]
            rotation = None if cos is None else _Rotation(x, cos, sin, add.outputs[0])
            if rotation is not None and _fits(rotation):
                return rotation
    return None


def _rotated(value: ir.Value | None) -> ir.Value | None:
    """Return x of ``concat(-x2, x1)``, where x1 and x2 are the halves of its last axis."""
    concat = made_by(value, "Concat")
    if concat is None or len(concat.inputs) != 2 or value is None or only_user(value, "Mul") is None:
        return None
    negated, low = made_by(concat.inputs[0], "Neg"), concat.inputs[1]
    high = None if negated is None else negated.inputs[0]
    x = low if low is None else _sliced(low)
    rank = None if x is None or x.shape is None else len(x.shape)
    if x is None or high is None or low is None or rank is None or _sliced(high) is not x:
        return None
    size = x.shape[-1] if x.shape is not None else None
    if not isinstance(size, int) or size % 2 or concat.attributes.get_int("axis", 0) not in (-1, rank - 1):
        return None
    return x if _part(low, size) == (0, size // 2) and _part(high, size) == (size // 2, size) else None


def _sliced(value: ir.Value) -> ir.Value | None:
    node = made_by(value, "Slice")
    return None if node is None else node.inputs[0]


def _part(value: ir.Value, size: int) -> tuple[int, int] | None:
    """Return what of the last axis a Slice takes: from, and up to."""
    node = made_by(value, "Slice")
    assert node is not None
    assert node.inputs[0] is not None
    numbers = [ir.convenience.get_const_tensor(v) if v is not None else None for v in node.inputs[1:]]
    given = [tensor.numpy().tolist() if tensor is not None else None for tensor in numbers]
    shape = node.inputs[0].shape
    assert shape is not None
    if len(given) < 3 or None in given[:3] or given[2] not in ([-1], [len(shape) - 1]):
        return None
    if len(given) > 3 and node.inputs[4] is not None and given[3] != [1]:
        return None
    return slice(given[0][0], given[1][0]).indices(size)[:2]  # type: ignore[index]


def _fits(rotation: _Rotation) -> bool:
    """Whether the tables are of one head, of one type, and of two equal halves."""
    x, tables = rotation.x, (rotation.cos, rotation.sin)
    if x.shape is None or len(x.shape) not in (3, 4) or not isinstance(x.shape[1], int):
        return False
    tokens = [axis for axis in range(len(x.shape)) if axis not in (1, len(x.shape) - 1)]
    for table in tables:
        if table.dtype != x.dtype or table.shape is None or len(table.shape) != len(x.shape):
            return False
        if table.shape[1] != 1 or table.shape[-1] != x.shape[-1] or not _has_equal_halves(table):
            return False
        if any(not _same(table.shape[axis], x.shape[axis]) for axis in tokens[-1:]):
            return False
        if len(tokens) > 1 and table.shape[0] != 1 and not _same(table.shape[0], x.shape[0]):
            return False
    return list(rotation.result.shape or ()) == list(x.shape)


def _same(one: int | ir.SymbolicDim, other: int | ir.SymbolicDim) -> bool:
    return one == other and (isinstance(one, int) or one.value is not None)


def _has_equal_halves(value: ir.Value) -> bool:
    node = value.producer()
    if node is None:
        tensor = None if value.is_graph_input() else ir.convenience.get_const_tensor(value)
        if tensor is None:
            return False
        low, high = np.split(tensor.numpy(), 2, axis=-1)
        return bool((low == high).all())
    source = node.inputs[0] if node.inputs else None
    if node.domain != "" or source is None or source.shape is None or value.shape is None:
        return False
    if node.op_type == "Concat":
        last = node.attributes.get_int("axis", 0) in (-1, len(value.shape) - 1)
        return last and len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
    if node.op_type in WITH_A_NUMBER:
        others = [operand for operand in node.inputs if scalar(operand) is None]
        return len(others) == 1 and others[0] is not None and _has_equal_halves(others[0])
    if node.op_type in KEEPS_HALVES:
        return _has_equal_halves(source)
    # The last axis stays one by itself if its length does; rows of tokens are picked along the first.
    moves = node.op_type in ("Reshape", "Squeeze", "Unsqueeze", "Expand")
    picks = node.op_type == "Gather" and node.attributes.get_int("axis", 0) == 0 and len(source.shape) > 1
    kept = len(source.shape) > 0 and source.shape[-1] == value.shape[-1] and isinstance(source.shape[-1], int)
    return (moves or picks) and kept and _has_equal_halves(source)


def _fuse(rotation: _Rotation) -> None:
    x, result = rotation.x, rotation.result
    assert x.shape is not None
    heads, size = x.shape[1], x.shape[-1]
    assert isinstance(heads, int)
    assert isinstance(size, int)
    build = Builder()
    halves = [_half(build, table, size) for table in (rotation.cos, rotation.sin)]
    old = result
    if len(x.shape) == 3:
        # Tokens are a sequence of a batch of one: as a batch, there may be more than CUDA has blocks for.
        tables = [build.op("Reshape", half, build.ints(1, -1, size // 2)) for half in halves]
        flat = build.op("Reshape", x, build.ints(1, -1, heads * size))
        turned = build.op("RotaryEmbedding", flat, *tables, num_heads=heads)
        made = build.op("Reshape", turned, build.ints(-1, heads, size))
    else:
        tables = [build.op("Squeeze", half, build.ints(1)) for half in halves]
        if rotation.cos.shape is not None and rotation.cos.shape[0] != x.shape[0]:
            batch = build.join(build.dimension(x, 0), build.ints(1, 1))
            tables = [build.op("Expand", table, batch) for table in tables]
        before, after = made_by(x, "Transpose"), only_user(result, "Transpose")
        if before is not None and after is not None and _swaps(before) and _swaps(after):
            # Queries that were [B, S, H, D], and are to be so again.
            assert before.inputs[0] is not None
            old = after.outputs[0]
            flat = build.op("Reshape", before.inputs[0], build.ints(0, 0, heads * size))
            turned = build.op("RotaryEmbedding", flat, *tables, num_heads=heads)
            made = build.op("Reshape", turned, build.ints(0, 0, heads, size))
        else:
            made = build.op("RotaryEmbedding", x, *tables)
    producer = old.producer()
    assert producer is not None
    assert producer.graph is not None
    for node in build.nodes:
        node.metadata_props.update(producer.metadata_props)
    producer.graph.insert_before(producer, build.nodes)
    take_over(old, like(made, old))


def _swaps(node: ir.Node) -> bool:
    return tuple(node.attributes.get_ints("perm", ()) or ()) == HEADS_INSIDE


def _half(build: Builder, table: ir.Value, size: int) -> ir.Value:
    return build.op("Slice", table, build.ints(0), build.ints(size // 2), build.ints(-1))
