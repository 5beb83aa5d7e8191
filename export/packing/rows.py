"""Attention of tokens in rows, on the CPU: a loop over the rows, each with its own length and no padding.

Attention costs the sum of the rows' lengths squared instead of B * S squared, and needs no mask for padding, whatever
side it is on. What a mask says beside padding is an attribute (causal), or is evaluated at the tokens' own positions.
Where every token is real, the rows are one batch, without the loop.

Shapes: T tokens, N queries and M keys of a row, E = H * D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from ...models.mask_leaves import evaluate
from ...models.masks import Causal, Full, Mask
from ..builder import Builder
from ..lowering.canonical import Inputs, Site
from ..sites_metadata import SITE_KEY
from .member import Member
from .packer import Packed, Packer
from .points import Points
from .tokens import Tokens

__all__ = ["Rows"]

BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64
# Beside any score these have no weight.
LOWEST = {ir.DataType.FLOAT16: -6e4}


@dataclass(frozen=True)
class Packed3:
    """Queries, keys and values, each [B, N, E]."""

    query: ir.Value
    key: ir.Value
    value: ir.Value


class Rows:
    """Writes attention as a loop over rows."""

    def __init__(self, packer: Packer) -> None:
        self.packer = packer

    def __call__(self, member: Member, inputs: Inputs, operands: Sequence[Packed]) -> tuple[ir.Value, str, str]:
        """Write the attention of packed queries, keys and values; return [T, Hq * Dv], the operator, and how."""
        build, tokens, site = self.packer.build, self.packer.tokens, member.site
        values = [operand.value for operand in operands]
        rows = [build.op("Unsqueeze", value, build.ints(0)) for value in values]
        whole = _batch(site, tokens, inputs, member.residual, values)
        looped = _loop(site, tokens, inputs, member.residual, rows)
        result = build.op("If", tokens.full, dtype=values[0].dtype, then_branch=whole, else_branch=looped)
        node = result.producer()
        assert node is not None
        node.metadata_props[SITE_KEY] = site.name
        told = "" if member.residual == Full() else f"; {member.residual} among them"
        why = f"padding is left out: rows of their own length, one by one{told}"
        return build.op("Squeeze", result, build.ints(0)), "ai.onnx.Attention", why


def _batch(site: Site, tokens: Tokens, inputs: Inputs, residual: Mask, operands: Sequence[ir.Value]) -> ir.Graph:
    """Return the branch for a batch without padding: [1, T, Hq * Dv]."""
    b = Builder(site.name)
    shape = b.join(tokens.batch, tokens.length, b.ints(-1))
    query, key, value = (b.op("Reshape", operand, shape) for operand in operands)
    places = b.op("Range", b.integer(0), b.op("Squeeze", tokens.length), b.integer(1), dtype=INT64)
    points = Points(b, inputs.tensors, tokens, places, places, None)
    bias = inputs.bias
    result = _kernel(b, site, Packed3(query, key, value), residual, points, bias, inputs.sink)
    return b.graph([b.op("Reshape", result, b.ints(1, -1, site.q_heads * site.v_head_size))], name="whole")


def _loop(site: Site, tokens: Tokens, inputs: Inputs, residual: Mask, rows: Sequence[ir.Value]) -> ir.Graph:
    """Return the branch that goes over the rows: [1, T, Hq * Dv]."""
    outer = Builder(site.name)
    # A sequence of nothing, for a batch of none.
    dtype = rows[0].dtype
    assert dtype is not None
    nothing = outer.constant([[]], dtype.numpy())
    start = outer.op("Reshape", nothing, outer.ints(1, 0, site.q_heads * site.v_head_size))
    sequence = ir.SequenceType(ir.TensorType(dtype))
    first = outer.op("SequenceConstruct", start)
    first.type = sequence
    row = ir.Value(name="row", type=ir.TensorType(INT64), shape=ir.Shape([]))
    goes_on = ir.Value(name="goes_on", type=ir.TensorType(BOOL), shape=ir.Shape([]))
    done = ir.Value(name="done", type=sequence)
    b = Builder(site.name)
    here = b.op("Unsqueeze", row, b.ints(0))
    begin, end, keys_end = (b.op("Gather", places, here) for places in (tokens.starts, tokens.ends, tokens.keys_end))
    axis = b.ints(1)
    query = b.op("Slice", rows[0], begin, end, axis)
    key, value = (b.op("Slice", operand, begin, keys_end, axis) for operand in rows[1:])
    needs_places = residual != Full() and residual != Causal()
    bias = inputs.bias
    points = None
    if needs_places or bias is not None or inputs.sink is not None:
        of_queries = b.op("Slice", tokens.position, begin, end)
        of_keys = b.op("Slice", tokens.position, begin, keys_end)
        points = Points(b, inputs.tensors, tokens, of_queries, of_keys, here)
        if bias is not None:
            bias = points.pick(bias)
    result = _kernel(b, site, Packed3(query, key, value), residual, points, bias, inputs.sink)
    more = b.op("SequenceInsert", done, result)
    more.type = sequence
    again = b.op("Identity", goes_on, shape=[])
    body = b.graph([again, more], [row, goes_on, done], name="row")
    found = outer.op("Loop", tokens.count, None, first, body=body)
    found.type = sequence
    return outer.graph([outer.op("ConcatFromSequence", found, dtype=dtype, axis=1)], name="rows")


def _kernel(
    b: Builder,
    site: Site,
    operands: Packed3,
    residual: Mask,
    points: Points | None,
    bias: ir.Value | None,
    sink: ir.Value | None,
) -> ir.Value:
    """Write the attention of [B, N, E], whose mask is what `points` says of the residual."""
    causal = residual == Causal() and sink is None
    mask = None
    if not causal and residual != Full():
        assert points is not None
        mask = evaluate(residual._expr, points).value
    added = _mask_input(b, points, mask, bias, operands.query.dtype)
    if sink is not None:
        assert points is not None
        operands, added = _with_sink(b, site, operands, points, added, sink)
    attributes: dict[str, Any] = {"scale": float(site.scale), "is_causal": int(causal)}
    if site.softcap:
        attributes["softcap"] = float(site.softcap)
    return b.op(
        "Attention",
        operands.query,
        operands.key,
        operands.value,
        added,
        q_num_heads=site.q_heads,
        kv_num_heads=site.kv_heads,
        **attributes,
    )


def _mask_input(
    b: Builder, points: Points | None, mask: ir.Value | None, bias: ir.Value | None, dtype: ir.DataType | None
) -> ir.Value | None:
    """Return what the operator's mask input is: its last axes must be those of queries and keys."""
    if mask is None and bias is None:
        return None
    assert points is not None
    assert dtype is not None
    if bias is None:
        assert mask is not None
        return points.expanded(mask)
    if mask is not None:
        bias = b.op("Where", mask, bias, _lowest(b, dtype), dtype=dtype)
    return points.expanded(bias)


def _lowest(b: Builder, dtype: ir.DataType) -> ir.Value:
    return b.constant(LOWEST.get(dtype, -1e30), dtype.numpy())


def _with_sink(
    b: Builder, site: Site, operands: Packed3, points: Points, added: ir.Value | None, sink: ir.Value
) -> tuple[Packed3, ir.Value]:
    """Add the sink as one more key: zeros, so that its score is what the mask input adds, and a value of zeros."""
    dtype = operands.query.dtype
    assert dtype is not None
    zero = b.constant(0, dtype.numpy())
    batch = b.dimension(operands.query, 0)

    def with_zeros(value: ir.Value, width: int) -> ir.Value:
        return b.op("Concat", value, b.op("Expand", zero, b.join(batch, b.ints(1, width))), axis=1)

    if added is None:
        added = zero
    elif added.dtype == BOOL:
        added = b.op("Where", added, zero, _lowest(b, dtype), dtype=dtype)
    each = b.join(batch, b.ints(site.q_heads), b.op("Shape", points.queries, dtype=INT64))
    scores = b.op("Expand", added, b.join(each, b.op("Shape", points.keys, dtype=INT64)))
    column = b.op("Expand", b.op("Reshape", sink, b.ints(1, -1, 1, 1)), b.join(each, b.ints(1)))
    keys = with_zeros(operands.key, site.kv_heads * site.head_size)
    values = with_zeros(operands.value, site.kv_heads * site.v_head_size)
    return Packed3(operands.query, keys, values), b.op("Concat", scores, column, axis=3)
