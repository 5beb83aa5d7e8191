"""Attention of tokens in groups, on CUDA: rows of a batch, or the segments in them, each of its own length.

Without a causal mask, tokens stay side by side and groups are cumulative lengths (PackedMultiHeadAttention), with no
mask and no padding. Else they are put in rows that are padded on the right, where causal is all that a mask says.

Shapes: T tokens, G groups, L the most tokens that a group may have, E = H * D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ..builder import MICROSOFT, Builder
from ..lowering.canonical import Site
from ..lowering.numbers import channel_factor
from .tokens import Tokens

__all__ = ["Groups", "attend_groups", "groups_of_rows", "groups_of_segments"]

BOOL, INT32, INT64 = ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64
# Flash Attention's head sizes.
HEAD_MULTIPLE = 8


@dataclass(frozen=True)
class Groups:
    """Groups of tokens that attend each other.

    Attributes
    ----------
    starts, ends : ir.Value
        int64 [G]: where each group's tokens begin and end.
    of_token : ir.Value
        int64 [T]: the group of each token.
    count, longest : ir.Value
        int64 [1]: G, and L.
    order, back : ir.Value or None
        int64 [T]: how tokens are ordered by groups, and how they get back; None if they are.
    keys : ir.Value or None
        int64 [G]: how many of a group's tokens, the first ones, are keys; None if all are.
    is_key : ir.Value or None
        bool [T]: which tokens are keys; None if all are.
    dummy : ir.Value or None
        bool [T]: what is in no group, the last ones; None if nothing is.
    most_dummies : int
        How many these may be, if that is more than L.
    """

    starts: ir.Value
    ends: ir.Value
    of_token: ir.Value
    count: ir.Value
    longest: ir.Value
    order: ir.Value | None = None
    back: ir.Value | None = None
    keys: ir.Value | None = None
    is_key: ir.Value | None = None
    dummy: ir.Value | None = None
    most_dummies: int = 0


def groups_of_rows(build: Builder, tokens: Tokens, *, extras: bool) -> Groups:
    """Return the rows of the batch; with `extras`, some tokens are no keys."""
    keys = build.op("Sub", tokens.keys_end, tokens.starts) if extras else None
    # The longest row would have to be read back from the device: the padded length will do.
    return Groups(
        tokens.starts,
        tokens.ends,
        tokens.row,
        tokens.batch,
        tokens.length,
        keys=keys,
        is_key=tokens.real if extras else None,
        dummy=tokens.dummy,
        most_dummies=tokens.most_dummies,
    )


def groups_of_segments(
    build: Builder, row: ir.Value, position: ir.Value, batch: ir.Value, length: ir.Value, segments: ir.Value
) -> Groups:
    """Return the tokens of equal row and segment, whatever their order.

    Parameters
    ----------
    row, position : ir.Value
        int64 [T]: where each token is in `segments` [B, S].
    """
    b = build
    if segments.dtype != INT64:
        segments = b.op("Cast", segments, to=INT64, dtype=INT64)
    # The number of smaller ids in the row before each id: equal for equal ids, and below S.
    values, places = b.outputs(2, "TopK", segments, length, axis=1, largest=0, dtype=INT64)
    before = b.op("Slice", values, b.ints(0), b.ints(-1), b.ints(1))
    after = b.op("Slice", values, b.ints(1), b.constant([2**62]), b.ints(1))
    grows = b.op("Cast", b.op("Not", b.op("Equal", after, before, dtype=BOOL)), to=INT64, dtype=INT64)
    first = b.op("Expand", b.integer(0), b.join(batch, b.ints(1)))
    sorted_rank = b.op("CumSum", b.op("Concat", first, grows, axis=1), b.integer(1))
    empty = b.op("Expand", b.integer(0), b.join(batch, length))
    rank = b.op("ScatterElements", empty, places, sorted_rank, axis=1)
    pair = b.op("Concat", b.op("Unsqueeze", row, b.ints(1)), b.op("Unsqueeze", position, b.ints(1)), axis=1)
    group = b.op("Add", b.op("Mul", row, length), b.op("GatherND", rank, pair, dtype=INT64))
    # Positions make every key another one, and keep the order within a group.
    key = b.op("Add", b.op("Mul", group, length), position)
    count = b.op("Shape", key, dtype=INT64)
    _, order = b.outputs(2, "TopK", key, count, axis=0, largest=0, dtype=INT64)
    numbers = b.op("Range", b.integer(0), b.op("Squeeze", count), b.integer(1), dtype=INT64)
    back = b.op("ScatterElements", numbers, order, numbers, axis=0)
    ordered = b.op("Gather", group, order, axis=0)
    differs = b.op(
        "Not",
        b.op(
            "Equal",
            b.op("Slice", ordered, b.ints(1), b.constant([2**62]), b.ints(0)),
            b.op("Slice", ordered, b.ints(0), b.ints(-1), b.ints(0)),
            dtype=BOOL,
        ),
    )
    # The first token begins a group, if there is one.
    one = b.op("Expand", b.constant(True), b.op("Min", count, b.ints(1)))
    begins = b.op("Concat", one, differs, axis=0)
    starts = b.op("Squeeze", b.op("NonZero", begins, dtype=INT64), b.ints(0))
    ends = b.op("Concat", b.op("Slice", starts, b.ints(1), b.constant([2**62]), b.ints(0)), count, axis=0)
    of_token = b.op("Sub", b.op("CumSum", b.op("Cast", begins, to=INT64, dtype=INT64), b.integer(0)), b.integer(1))
    longest = b.op("ReduceMax", b.op("Sub", ends, starts), b.ints(0), keepdims=1)
    return Groups(starts, ends, of_token, b.op("Shape", starts, dtype=INT64), longest, order, back)


def attend_groups(
    build: Builder, groups: Groups, site: Site, causal: bool, operands: Sequence[ir.Value], dtype: str | None
) -> tuple[ir.Value, str]:
    """Write the attention of tokens [T, E] within their groups; return [T, Hq * Dv] and the operator.

    Parameters
    ----------
    causal : bool
        Whether a token attends those before it alone.
    dtype : str or None
        What the model will compute in.
    """
    b = build
    if groups.order is not None:
        operands = [b.op("Gather", operand, groups.order, axis=0) for operand in operands]
    packs = not causal and site.kv_heads == site.q_heads and not site.softcap and dtype != "bfloat16"
    factor = channel_factor(site.scale, dtype or "float32")
    if packs and groups.is_key is not None and factor is not None:
        wide, operands = _with_channel(b, groups.is_key, site, factor, operands)
        whole = _side_by_side(b, groups, wide, operands)
        result, kernel = _narrowed(b, whole, wide, site.v_head_size), "com.microsoft.PackedMultiHeadAttention"
    elif packs and groups.keys is None:
        result, kernel = _side_by_side(b, groups, site, operands), "com.microsoft.PackedMultiHeadAttention"
    else:
        result, kernel = _in_rows(b, groups, site, causal, operands), "ai.onnx.Attention"
    if groups.back is not None:
        result = b.op("Gather", result, groups.back, axis=0)
    return result, kernel


def _with_channel(
    b: Builder, is_key: ir.Value, site: Site, factor: float, operands: Sequence[ir.Value]
) -> tuple[Site, list[ir.Value]]:
    """Tell by one more element of each head which tokens are no keys: c for a query, -c for such a key, else 0.

    Flash Attention takes heads of a multiple of 8. A group without a key attends the tokens that it has.
    """
    size = (max(site.head_size, site.v_head_size) // HEAD_MULTIPLE + 1) * HEAD_MULTIPLE
    more = [size - site.head_size, size - site.head_size, size - site.v_head_size]
    dtype = operands[0].dtype
    assert dtype is not None
    marks = np.zeros((2, 1, 1, more[0]), dtype.numpy())
    marks[:, 0, 0, 0] = factor, -factor
    real = b.op("Unsqueeze", is_key, b.ints(1, 2))
    hidden = b.op("Where", real, b.constant(np.zeros_like(marks[1])), b.constant(marks[1]), dtype=dtype)
    one_head = b.op("Shape", hidden, dtype=INT64, start=0, end=1)
    added = [b.constant(marks[0]), hidden, b.constant(np.zeros((1, 1, more[2]), dtype.numpy()))]
    wide = []
    for operand, element, count in zip(operands, added, more, strict=True):
        heads = b.op("Reshape", operand, b.ints(-1, site.q_heads, size - count))
        same = b.op("Expand", element, b.join(one_head, b.ints(site.q_heads, count)))
        joined = b.op("Concat", heads, same, axis=2)
        wide.append(b.op("Reshape", joined, b.ints(-1, site.q_heads * size)))
    return replace(site, head_size=size, v_head_size=size), wide


def _narrowed(b: Builder, value: ir.Value, wide: Site, kept: int) -> ir.Value:
    """Return the first elements of each head: [T, H * kept]."""
    heads = b.op("Reshape", value, b.ints(-1, wide.q_heads, wide.v_head_size))
    return b.op("Reshape", b.op("Slice", heads, b.ints(0), b.ints(kept), b.ints(2)), b.ints(-1, wide.q_heads * kept))


def _numbers(b: Builder, groups: Groups) -> ir.Value:
    """Return 0 to T - 1, int64 [T]."""
    count = b.op("Squeeze", b.op("Shape", groups.of_token, dtype=INT64))
    return b.op("Range", b.integer(0), count, b.integer(1), dtype=INT64)


def _within(b: Builder, groups: Groups) -> ir.Value:
    """Return the place of each token in its group, int64 [T]; of dummies 0."""
    within = b.op("Sub", _numbers(b, groups), b.op("Gather", groups.starts, groups.of_token, axis=0))
    return within if groups.dummy is None else b.op("Where", groups.dummy, b.integer(0), within, dtype=INT64)


def _with_dummies(b: Builder, groups: Groups) -> Groups:
    """Return the groups with one more, of the dummies, so that what they get is defined."""
    if groups.dummy is None:
        return groups
    far = b.constant([2**62])
    end = b.op("Slice", groups.ends, b.ints(-1), far, b.ints(0))
    total = b.op("Add", b.op("Slice", _numbers(b, groups), b.ints(-1), far, b.ints(0)), b.integer(1))
    return replace(
        groups,
        starts=b.join(groups.starts, end),
        ends=b.join(groups.ends, total),
        count=b.op("Add", groups.count, b.ints(1)),
        longest=b.op("Max", groups.longest, b.ints(groups.most_dummies)),
    )


# Lengths that are known on the host and values on the device don't meet in an operator below: each such meeting is a
# copy, and forbids a CUDA graph. Range, Expand and Reshape take lengths where they are.


def _side_by_side(b: Builder, groups: Groups, site: Site, operands: Sequence[ir.Value]) -> ir.Value:
    groups = _with_dummies(b, groups)
    zero = b.constant([0], "int32")
    cumulative = b.op("Concat", zero, b.op("Cast", groups.ends, to=INT32, dtype=INT32), axis=0)
    size, shape = b.op("Mul", groups.count, groups.longest), b.join(groups.count, groups.longest)
    numbers = b.op("Range", b.integer(0), b.op("Squeeze", size), b.integer(1), dtype=INT64)
    places = b.op("Reshape", numbers, shape)
    within = b.op("Range", b.integer(0), b.op("Squeeze", groups.longest), b.integer(1), dtype=INT64)
    starts, ends = (b.op("Unsqueeze", value, b.ints(1)) for value in (groups.starts, groups.ends))
    # Tokens first, in their order; then the places of padding, as if each group were padded on the right.
    is_token = b.op("Less", within, b.op("Sub", ends, starts), dtype=BOOL)
    total = b.op("Slice", groups.ends, b.ints(-1), b.constant([2**62]), b.ints(0))
    padding = b.op("Add", places, b.op("Sub", total, ends))
    rank = b.op("Where", is_token, b.op("Add", starts, within), padding, dtype=INT64)
    flat = b.op("Reshape", rank, b.ints(-1))
    offsets = b.op("ScatterElements", b.op("Expand", b.integer(0), size), flat, numbers, axis=0)
    offsets = b.op("Cast", b.op("Reshape", offsets, shape), to=INT32, dtype=INT32)
    query, key, value = operands
    return b.op(
        "PackedMultiHeadAttention",
        query,
        key,
        value,
        None,
        offsets,
        cumulative,
        domain=MICROSOFT,
        num_heads=site.q_heads,
        scale=float(site.scale),
    )


def _in_rows(b: Builder, groups: Groups, site: Site, causal: bool, operands: Sequence[ir.Value]) -> ir.Value:
    places = b.op("Range", b.integer(0), b.op("Squeeze", groups.longest), b.integer(1), dtype=INT64)
    starts, last = b.op("Unsqueeze", groups.starts, b.ints(1)), b.op("Sub", groups.ends, b.integer(1))
    index = b.op("Min", b.op("Add", starts, places), b.op("Unsqueeze", last, b.ints(1)))
    rows = [b.op("Gather", operand, index, axis=0) for operand in operands]
    attributes: dict[str, Any] = {"scale": float(site.scale), "is_causal": int(causal)}
    if site.softcap:
        attributes["softcap"] = float(site.softcap)
    inputs: list[ir.Value | None] = [*rows]
    if not causal:
        keys = groups.keys if groups.keys is not None else b.op("Sub", groups.ends, groups.starts)
        inputs += [None, None, None, keys]
    attended = b.op("Attention", *inputs, q_num_heads=site.q_heads, kv_num_heads=site.kv_heads, **attributes)
    # Where each token is among all places, once for all layers: in each, Gather is one launch and GatherND two.
    size, shape = b.op("Mul", groups.count, groups.longest), b.join(groups.count, groups.longest)
    numbers = b.op("Reshape", b.op("Range", b.integer(0), b.op("Squeeze", size), b.integer(1), dtype=INT64), shape)
    place = [b.op("Unsqueeze", value, b.ints(1)) for value in (groups.of_token, _within(b, groups))]
    token = b.op("GatherND", numbers, b.op("Concat", *place, axis=1), dtype=INT64)
    flat = b.op("Reshape", attended, b.ints(-1, site.q_heads * site.v_head_size))
    return b.op("Gather", flat, token, axis=0)
