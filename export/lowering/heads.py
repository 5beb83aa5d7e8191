"""Heads side by side, [B, S, H * D], made wider: what a kernel's head size or a channel of keys needs.

Shapes: B batch, S sequence, H heads, D size of a head, C elements added to each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from .asked import Asked, dim
from .build import SiteBuilder
from .kernels import Kernel
from .masks import MaskWriter
from .numbers import channel_factor

__all__ = ["Sizes", "narrow", "sizes_of", "widened"]


# Above zero in every element type, and below one of as many keys as fit.
SMALLEST_SHARE = 1e-7


@dataclass(frozen=True)
class Sizes:
    """Sizes of the heads of queries and keys, and of values, as a kernel is given them."""

    head: int
    value: int


def sizes_of(kernel: Kernel, asked: Asked, provider: str) -> Sizes:
    """Return the head sizes that a kernel is given."""
    channel = kernel.rest == "channel"
    head, value = asked.site.head_size + channel, asked.site.v_head_size + (channel and asked.site.softcap != 0)
    multiple = kernel.head_multiple.get(provider, 1)
    if provider in kernel.one_head_size:
        head = value = max(head, value)
    return Sizes(-(-head // multiple) * multiple, -(-value // multiple) * multiple)


def widened(
    b: SiteBuilder, masks: MaskWriter, kernel: Kernel, asked: Asked, sizes: Sizes
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return queries, keys and values with heads of these sizes.

    The first element that a channel adds is c for a query and 0 or -c for a key; all others meet a zero. A softcap
    bounds what that adds, so that masked keys keep a share of the weights, though no larger than any other's. Their
    values are zeros then, and one more element, 1 for other keys and 0 for them, sums to the share of the others.
    """
    site, inputs, dtype = asked.site, asked.inputs, asked.inputs.query.dtype
    assert dtype is not None
    count = sizes.head - site.head_size
    query, key, value = inputs.query, inputs.key, inputs.value
    if count:
        ones = np.zeros(count)
        if kernel.rest == "channel":
            factor = channel_factor(site.scale, asked.dtype)
            assert factor is not None
            ones[0] = factor
            key = _joined(b, key, site.kv_heads, site.head_size, masks.key_channels(asked, count))
        else:
            key = _joined(b, key, site.kv_heads, site.head_size, _filled(masks, key, site.kv_heads, np.zeros(count)))
        query = _joined(b, query, site.q_heads, site.head_size, _filled(masks, query, site.q_heads, ones))
    if count := sizes.value - site.v_head_size:
        if kernel.rest == "channel" and site.softcap:
            shares = masks.shares(asked)
            shape = [dim(value, 0), dim(value, 1), site.kv_heads]
            split = b.reshape(value, (0, 0, site.kv_heads, site.v_head_size), [*shape, site.v_head_size])
            split = b.op("Mul", split, shares, shape=[*shape, site.v_head_size])
            value = b.reshape(split, (0, 0, site.kv_heads * site.v_head_size), [*shape[:2], dim(value, 2)])
            more = b.op("Expand", shares, b.ints(1, 1, 1, count), shape=[*shape, count])
        else:
            more = _filled(masks, value, site.kv_heads, np.zeros(count))
        value = _joined(b, value, site.kv_heads, site.v_head_size, more)
    return query, key, value


def narrow(b: SiteBuilder, value: ir.Value, heads: int, size: int, kept: int, *, shared: bool = False) -> ir.Value:
    """Return [B, S, H * kept], the first elements of heads of a size; `shared`: divided by the one that is next."""
    if size == kept:
        return value
    batch, length = dim(value, 0), dim(value, 1)
    split = b.reshape(value, (0, 0, heads, size), [batch, length, heads, size])
    shape = [batch, length, heads, kept]
    whole = split
    split = b.op("Slice", whole, b.ints(0), b.ints(kept), b.ints(3), shape=shape)
    if shared:
        assert value.dtype is not None
        share = b.op("Slice", whole, b.ints(kept), b.ints(kept + 1), b.ints(3), shape=[*shape[:3], 1])
        # A row without keys is zero.
        share = b.op("Max", share, b.array(SMALLEST_SHARE, value.dtype), shape=[*shape[:3], 1])
        split = b.op("Div", split, share, shape=shape)
    return b.reshape(split, (0, 0, heads * kept), [batch, length, heads * kept])


def _filled(masks: MaskWriter, like: ir.Value, heads: int, elements: np.ndarray) -> ir.Value:
    """Return [B, S, H, C] that has the same elements everywhere."""
    b, dtype, count = masks.b, like.dtype, len(elements)
    assert dtype is not None

    def make() -> ir.Value:
        shape = b.join(b.size(like, 0), b.size(like, 1), b.ints(heads, count))
        row = b.array(elements.reshape(1, 1, 1, count), dtype)
        return b.op("Expand", row, shape, shape=[dim(like, 0), dim(like, 1), heads, count])

    return masks.shared(("filled", heads, *elements, dtype), like, (0, 1), make)


def _joined(b: SiteBuilder, value: ir.Value, heads: int, size: int, more: ir.Value) -> ir.Value:
    batch, length, count = dim(value, 0), dim(value, 1), dim(more, 3)
    assert isinstance(count, int)
    wide = size + count
    split = b.reshape(value, (0, 0, heads, size), [batch, length, heads, size])
    split = b.concat([split, more], 3, [batch, length, heads, wide])
    return b.reshape(split, (0, 0, heads * wide), [batch, length, heads * wide])
