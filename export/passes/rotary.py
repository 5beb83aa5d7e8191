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
        writer = _Writer()
        for rotation in found:
            writer.fuse(rotation)
        if found:
            model.graph.sort()
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


class _Writer:
    """Writes rotations; a table is made once for all that are alike."""

    def __init__(self) -> None:
        self.build = Builder()
        self.tables: dict[tuple[object, ...], ir.Value] = {}

    def fuse(self, rotation: _Rotation) -> None:
        """Write the operator in the place of the last node that it replaces."""
        old, made = self._by_token(rotation) if len(rotation.x.shape or ()) == 3 else self._by_place(rotation)
        producer, nodes = old.producer(), self.build.nodes
        assert producer is not None
        assert producer.graph is not None
        for node in nodes:
            node.metadata_props.update(producer.metadata_props)
        producer.graph.insert_before(producer, nodes)
        self.build = Builder()
        take_over(old, like(made, old))

    def _by_token(self, rotation: _Rotation) -> tuple[ir.Value, ir.Value]:
        """Return what is replaced, and by what, for [T, H, D]."""
        b, x, result = self.build, rotation.x, rotation.result
        heads, size = _sizes(x)
        # Tokens are a sequence of a batch of one: as a batch, there may be more than CUDA has blocks for.
        tables = [self._table(table, size, (1, -1, size // 2)) for table in (rotation.cos, rotation.sin)]
        joined = only_user(result, "Reshape")
        rows = None if joined is None else only_user(joined.outputs[0], "Gather")
        if joined is not None and rows is not None and _picks_rows(joined, rows, heads * size):
            # Put in rows before: with what else is, in one launch.
            index = rows.inputs[1]
            assert index is not None
            picked = b.op("Gather", _side_by_side(b, x, heads * size), index, axis=0)
            tables = [self._picked(table, index, size) for table in tables]
            return rows.outputs[0], b.op("RotaryEmbedding", picked, *tables, num_heads=heads)
        flat = b.op("Reshape", x, b.ints(1, -1, heads * size))
        turned = b.op("RotaryEmbedding", flat, *tables, num_heads=heads)
        return result, b.op("Reshape", turned, b.ints(-1, heads, size))

    def _by_place(self, rotation: _Rotation) -> tuple[ir.Value, ir.Value]:
        """Return what is replaced, and by what, for [B, H, S, D]."""
        b, x, result = self.build, rotation.x, rotation.result
        heads, size = _sizes(x)
        tables = [self._table(table, size, (0, -1, size // 2)) for table in (rotation.cos, rotation.sin)]
        assert x.shape is not None
        assert rotation.cos.shape is not None
        before, after = made_by(x, "Transpose"), only_user(result, "Transpose")
        if rotation.cos.shape[0] != x.shape[0]:
            source = x if before is None or not _swaps(before) else before.inputs[0]
            assert source is not None
            tables = [self._of_batch(table, source, x.shape[0]) for table in tables]
        if before is None or after is None or not (_swaps(before) and _swaps(after)):
            return result, b.op("RotaryEmbedding", x, *tables)
        # What was [B, S, H, D], and is to be so again.
        assert before.inputs[0] is not None
        flat = b.op("Reshape", before.inputs[0], b.ints(0, 0, heads * size))
        turned = b.op("RotaryEmbedding", flat, *tables, num_heads=heads)
        return after.outputs[0], b.op("Reshape", turned, b.ints(0, 0, heads, size))

    def _table(self, table: ir.Value, size: int, shape: tuple[int, ...]) -> ir.Value:
        """Return the first half of a table, [B, S, D / 2] or [1, T, D / 2]."""
        b, key = self.build, (table, *shape)
        if key not in self.tables:
            half = b.op("Slice", table, b.ints(0), b.ints(size // 2), b.ints(-1))
            self.tables[key] = b.op("Reshape", half, b.ints(*shape))
        return self.tables[key]

    def _picked(self, table: ir.Value, index: ir.Value, size: int) -> ir.Value:
        b, key = self.build, (table, index)
        if key not in self.tables:
            flat = b.op("Reshape", table, b.ints(-1, size // 2))
            self.tables[key] = b.op("Gather", flat, index, axis=0)
        return self.tables[key]

    def _of_batch(self, table: ir.Value, x: ir.Value, batch: int | ir.SymbolicDim) -> ir.Value:
        """Return a table that is the same for all rows, for each row of x: the operator wants that."""
        b = self.build
        known = isinstance(batch, int) or batch.value is not None
        key = (table, str(batch) if known else x)
        if key not in self.tables:
            self.tables[key] = b.op("Expand", table, b.join(b.dimension(x, 0), b.ints(1, 1)))
        return self.tables[key]


def _sizes(x: ir.Value) -> tuple[int, int]:
    """Return H and D."""
    assert x.shape is not None
    heads, size = x.shape[1], x.shape[-1]
    assert isinstance(heads, int)
    assert isinstance(size, int)
    return heads, size


def _side_by_side(b: Builder, x: ir.Value, width: int) -> ir.Value:
    """Return [T, H, D] as [T, H * D]."""
    split = made_by(x, "Reshape")
    whole = None if split is None else split.inputs[0]
    if whole is not None and whole.shape is not None and len(whole.shape) == 2 and whole.shape[-1] == width:
        return whole
    return b.op("Reshape", x, b.ints(-1, width))


def _swaps(node: ir.Node) -> bool:
    return tuple(node.attributes.get_ints("perm", ()) or ()) == HEADS_INSIDE


def _picks_rows(joined: ir.Node, rows: ir.Node, width: int) -> bool:
    """Whether tokens [T, H * D] are put in rows, [B, L, H * D]."""
    flat, index = joined.outputs[0], rows.inputs[1]
    if rows.inputs[0] is not flat or rows.attributes.get_int("axis", 0) != 0 or index is None or index.shape is None:
        return False
    return flat.shape is not None and len(flat.shape) == 2 and flat.shape[-1] == width and len(index.shape) == 2
