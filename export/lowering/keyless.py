"""What a row without a key gives where other rows may read it.

A row that has no key is no valid row, and kernels differ in what they give for it: zero, a mean, anything finite. That
does no harm where nobody attends it, as with padding. Where its token may be a key of others, their rows of the next
layer hold its value: there it becomes what the source gives.

Shapes: B batch, Q queries, K keys, P keys of earlier runs, H query heads, G key heads, D size of a head of values.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from ...models.masks import Mask, Window
from ..builder import Builder

if TYPE_CHECKING:
    from .canonical import Site

__all__ = ["KeylessRows", "may_be_read", "refusal"]

BOOL, FLOAT, INT64 = ir.DataType.BOOL, ir.DataType.FLOAT, ir.DataType.INT64
# Predicates of the key alone.
OF_KEYS = ("full", "padding(", "prefix(")
# What the graph of a mask is written for; its operators are the same in all later ones.
MASK_OPSET = 13


def may_be_read(mask: Mask, *, cross: bool) -> bool:
    """Return whether a row without a key may be one that others attend: not if every key attends at least itself.

    Where a mask asks of keys alone, all rows of a batch row have keys or none has.
    """
    of_keys = [one for one in mask.conjuncts if all(str(leaf).startswith(OF_KEYS) for leaf in one.leaves)]
    if len(of_keys) == len(mask.conjuncts):
        return False
    return cross or not functools.reduce(operator.and_, of_keys, Window(0, 0)).implies(mask)


def refusal(site: Site, *, cached: bool) -> str | None:
    """Return why rows without a key can't be what the source gives, where that matters."""
    if not may_be_read(site.mask, cross=site.cross):
        return None
    if site.empty_rows == "unknown":
        return f"a row of `{site.mask}` may have no key and be read by others, and what it gives is not known"
    if site.empty_rows == "mean" and cached:
        return f"a row of `{site.mask}` may have no key and be read by others: the mean of a cache is not written"
    return None


class KeylessRows:
    """Writes what the source gives into rows without a key; which they are is computed once for all alike."""

    def __init__(self) -> None:
        self._known: dict[Hashable, ir.Value] = {}

    def __call__(self, b: Builder, site: Site, inputs: Sequence[ir.Value | None], result: ir.Value) -> ir.Value:
        """Return an attention's result [B, Q, H * D]; the inputs are those of its canonical node."""
        if not may_be_read(site.mask, cross=site.cross):
            return result
        dtype = result.dtype
        assert dtype is not None
        heads, size = site.q_heads, site.v_head_size
        has_key = self._has_key(b, site, inputs)
        # NaN of the source is no number to keep.
        instead = self._mean(b, site, inputs[2]) if site.empty_rows == "mean" else b.constant(0, dtype.numpy())
        by_head = b.op("Reshape", result, b.ints(0, 0, heads, size))
        chosen = b.op("Where", has_key, by_head, instead, dtype=dtype)
        joined = b.op("Reshape", chosen, b.ints(0, 0, heads * size))
        joined.shape = result.shape
        return joined

    def _has_key(self, b: Builder, site: Site, inputs: Sequence[ir.Value | None]) -> ir.Value:
        """Return which queries have a key, bool [B, Q, H or 1, 1]."""
        query, key, past, tensors = inputs[0], inputs[1], inputs[5], inputs[7:]
        assert query is not None
        assert key is not None
        sizes = [value if value.shape is None else str(value.shape[:2]) for value in (query, key)]
        of = (str(site.mask), *tensors, *sizes, past)
        if of not in self._known:
            before = b.ints(0) if past is None else b.dimension(past, 2)
            queries, keys = b.dimension(query, 1), b.op("Add", b.dimension(key, 1), before)
            lengths = {"q_len": queries, "k_len": keys, "past": before}
            given = {name: b.op("Squeeze", n, dtype=INT64, shape=[]) for name, n in lengths.items()}
            given |= {name: value for name, value in zip(site.tensors, tensors, strict=True) if value is not None}
            attend = b.op("Cast", _written(b, site.mask, given), to=FLOAT, dtype=FLOAT)
            every = b.join(b.dimension(query, 0), b.ints(1), queries, keys)
            found = b.op("ReduceSum", b.op("Expand", attend, every), b.ints(3), keepdims=1)
            some = b.op("Greater", found, b.constant(0, "float32"), dtype=BOOL)
            self._known[of] = b.op("Transpose", some, perm=[0, 2, 1, 3])
        return self._known[of]

    def _mean(self, b: Builder, site: Site, value: ir.Value | None) -> ir.Value:
        """Return the mean of all values, [B, 1, H, D]."""
        assert value is not None
        assert value.dtype is not None
        # By a sum, whose axes are an input in every opset.
        count = b.op("Cast", b.dimension(value, 1), to=value.dtype, dtype=value.dtype)
        mean = b.op("Div", b.op("ReduceSum", value, b.ints(1), keepdims=1), count)
        groups, each = site.kv_heads, site.q_heads // site.kv_heads
        if each == 1:
            return b.op("Reshape", mean, b.ints(0, 1, groups, site.v_head_size))
        mean = b.op("Reshape", mean, b.ints(0, 1, groups, 1, site.v_head_size))
        mean = b.op("Expand", mean, b.ints(1, 1, 1, each, 1))
        return b.op("Reshape", mean, b.ints(0, 1, site.q_heads, site.v_head_size))


def _written(b: Builder, mask: Mask, given: dict[str, ir.Value]) -> ir.Value:
    """Write a mask; return bool, broadcastable to [B, H, Q, K]."""
    dtypes = {}
    for name, spec in mask.tensors.items():
        value = given[name]
        if "i" in spec.kinds and value.dtype != INT64:
            given[name] = b.op("Cast", value, to=INT64, dtype=INT64)
        elif "i" not in spec.kinds:
            if value.dtype != BOOL:
                given[name] = b.op("Cast", value, to=BOOL, dtype=BOOL)
            dtypes[name] = bool
    graph = ir.from_proto(mask.to_onnx(opset_version=MASK_OPSET, dtypes=dtypes)).graph
    made = {value: given[str(value.name)] for value in graph.inputs}
    for node in graph:
        operands = [None if value is None else made[value] for value in node.inputs]
        copied = b.add(ir.Node(node.domain, node.op_type, operands, node.attributes.values(), num_outputs=1))
        made[node.outputs[0]] = copied.outputs[0]
    attend = made[graph.outputs[0]]
    attend.dtype = BOOL
    return attend
