"""Write a site as the operator of a kernel.

Shapes: B batch, H query heads, G key heads, Q queries, K keys, P keys of a cache, D size of a head, Dv of values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from ..builder import MICROSOFT
from .asked import Asked, Dim, dim, parts
from .build import SiteBuilder, dims
from .heads import narrow, sizes_of, widened
from .kernels import ATTENTION, DECOMPOSED, GROUP_QUERY, MULTI_HEAD, Kernel
from .masks import MaskWriter
from .numbers import fill

__all__ = ["emit"]

INT32, INT64 = ir.DataType.INT32, ir.DataType.INT64


def emit(b: SiteBuilder, masks: MaskWriter, kernel: Kernel, asked: Asked, provider: str) -> list[ir.Value]:
    """Add the nodes of a site and return its outputs: the result, and keys and values for a cache if it gives them."""
    return _EMITTERS[kernel.operator](b, masks, kernel, asked, provider)


def _attention(b: SiteBuilder, masks: MaskWriter, kernel: Kernel, asked: Asked, provider: str) -> list[ir.Value]:
    site, inputs, sizes = asked.site, asked.inputs, sizes_of(kernel, asked, provider)
    if inputs.past_key is not None or asked.presents:
        # A cache has the heads that it has.
        query, key, value, v_size = inputs.query, inputs.key, inputs.value, site.v_head_size
    else:
        query, key, value = widened(b, masks, kernel, asked, sizes)
        v_size = sizes.value
    mask = masks.own_bias if kernel.own_bias else {"bool": masks.bool_mask, "bias": masks.bias}.get(kernel.rest)
    lengths = masks.lengths(asked, provider) if kernel.rest == "lengths" else None
    attributes = {
        "q_num_heads": site.q_heads,
        "kv_num_heads": site.kv_heads,
        "scale": site.scale,
        "softcap": site.softcap,
        "is_causal": int(kernel.window == "causal"),
    }
    batch, keys = asked.lengths.batch, asked.lengths.keys
    shapes: list[list[Dim]] = [_result_shape(asked, v_size)]
    if asked.presents:
        shapes += [[batch, site.kv_heads, keys, size] for size in (site.head_size, v_size)]
    masked = mask(asked) if mask else None
    operands = [query, key, value, masked, inputs.past_key, inputs.past_value, lengths]
    outputs = b.operator("Attention", operands, attributes, shapes)
    shared = kernel.rest == "channel" and site.softcap != 0
    return [narrow(b, outputs[0], site.q_heads, v_size, site.v_head_size, shared=shared), *outputs[1:]]


def _multi_head(b: SiteBuilder, masks: MaskWriter, kernel: Kernel, asked: Asked, provider: str) -> list[ir.Value]:
    site, inputs = asked.site, asked.inputs
    attributes: dict[str, object] = {"num_heads": site.q_heads, "scale": site.scale}
    if kernel.window == "causal":
        attributes["unidirectional"] = 1
    key_mask = bias = None
    if kernel.rest == "key mask":
        key_mask, attributes["mask_filter_value"] = masks.key_mask(asked), fill(asked.dtype)
    elif kernel.rest == "bias":
        bias = masks.bias(asked)
    operands = [inputs.query, inputs.key, inputs.value, None, key_mask, bias]
    return b.operator("MultiHeadAttention", operands, attributes, [_result_shape(asked, site.v_head_size)], MICROSOFT)


def _group_query(b: SiteBuilder, masks: MaskWriter, kernel: Kernel, asked: Asked, provider: str) -> list[ir.Value]:
    site, inputs, sizes = asked.site, asked.inputs, sizes_of(kernel, asked, provider)
    query, key, value = widened(b, masks, kernel, asked, sizes)
    total = masks.shared("total", inputs.query, (1,), lambda: _total(b, inputs.query))
    ends = masks.shared("ends", inputs.query, (0, 1), lambda: _ends(b, inputs.query, total))
    guarded = not isinstance(asked.lengths.batch, int)
    batch = b.size(query, 0)
    if guarded:
        query, key, value = (_with_a_row(masks, operand) for operand in (query, key, value))
    assert query.dtype is not None
    sink = None if inputs.sink is None else b.cast(inputs.sink, query.dtype)
    attributes = {
        "num_heads": site.q_heads,
        "kv_num_heads": site.kv_heads,
        "scale": site.scale,
        "softcap": site.softcap,
        # It counts the query's own key, a window of the algebra doesn't.
        "local_window_size": parts(asked.mask).left + 1 if kernel.window == "local" else 0,
    }
    present: list[Dim] = [dim(query, 0), site.kv_heads, asked.lengths.keys, sizes.head]
    # Its fast kernels want the outputs for a cache wired, used or not.
    operands = [query, key, value, None, None, ends, total, None, None, None, None, sink]
    shapes = [[dim(query, 0), dim(query, 1), site.q_heads * sizes.value], present, present]
    outputs = b.operator("GroupQueryAttention", operands, attributes, shapes, MICROSOFT)
    result = outputs[0]
    if guarded:
        result = b.op(
            "Slice", result, b.ints(0), batch, b.ints(0), dtype=result.dtype, shape=_result_shape(asked, sizes.value)
        )
    shared = kernel.rest == "channel" and site.softcap != 0
    return [narrow(b, result, site.q_heads, sizes.value, site.v_head_size, shared=shared)]


def _total(b: SiteBuilder, query: ir.Value) -> ir.Value:
    """Return the number of keys, int32."""
    return b.cast(b.op("Squeeze", b.size(query, 1), shape=[]), INT32)


def _ends(b: SiteBuilder, query: ir.Value, total: ir.Value) -> ir.Value:
    """Return the last key of each row, int32 [B], of one row where the batch is empty."""
    rows = b.op("Max", b.size(query, 0), b.ints(1), shape=[1])
    one = b.array(1, INT32)
    # Range takes a length on the host and gives a value on the device, where Expand would have it copied.
    last = b.op("Range", b.op("Sub", total, one, shape=[]), total, one, shape=[1])
    return b.op("Expand", last, rows, shape=[None])


def _with_a_row(masks: MaskWriter, value: ir.Value) -> ir.Value:
    """Return a value of which a batch of 0 has become one row of zeros."""
    b, dtype, shape = masks.b, value.dtype, [None, dim(value, 1), dim(value, 2)]
    assert dtype is not None

    def make() -> ir.Value:
        missing = b.op("Max", b.op("Sub", b.ints(1), b.size(value, 0), shape=[1]), b.ints(0), shape=[1])
        sizes = b.join(missing, b.size(value, 1), b.size(value, 2))
        return b.op("Expand", b.array(np.zeros((1, 1, 1)), dtype), sizes, shape=shape)

    return b.concat([value, masks.shared(("row", dtype), value, (0, 1, 2), make)], 0, shape)


def _decomposed(b: SiteBuilder, masks: MaskWriter, kernel: Kernel, asked: Asked, provider: str) -> list[ir.Value]:
    site, inputs, lengths, dtype = asked.site, asked.inputs, asked.lengths, asked.inputs.query.dtype
    assert dtype is not None
    groups, heads, each = site.kv_heads, site.q_heads, site.q_heads // site.kv_heads
    batch, queries, keys = lengths.batch, lengths.queries, lengths.keys
    query = _by_head(b, inputs.query, heads, site.head_size)
    key, value = (
        _by_head(b, inputs.key, groups, site.head_size),
        _by_head(b, inputs.value, groups, site.v_head_size),
    )
    if inputs.past_key is not None and inputs.past_value is not None:
        key = b.concat([inputs.past_key, key], 2, [batch, groups, keys, site.head_size])
        value = b.concat([inputs.past_value, value], 2, [batch, groups, keys, site.v_head_size])
    presents = [key, value] if asked.presents else []
    # Query heads of a group one after the other are one long sequence of queries.
    if each > 1:
        query = b.reshape(query, (0, groups, -1, site.head_size), [batch, groups, None, site.head_size])
    query = b.op("Mul", query, b.array(site.scale, dtype), dtype=dtype, shape=dims(query))
    turned = b.op("Transpose", key, perm=[0, 1, 3, 2], dtype=dtype, shape=[batch, groups, site.head_size, keys])
    scores = b.op("MatMul", query, turned, dtype=dtype, shape=[batch, groups, None, keys])
    if each > 1:
        shape = b.join(b.ints(0, heads), b.size(inputs.query, 1), b.ints(-1))
        scores = b.op("Reshape", scores, shape, dtype=dtype)
    scores.shape = ir.Shape([batch, heads, queries, keys])
    scores = _masked(b, masks, asked, scores)
    weights = _softmax(b, asked, scores)
    if each > 1:
        shape = b.join(b.ints(0, groups, -1), _keys(b, masks, asked))
        weights = b.op("Reshape", weights, shape, dtype=dtype, shape=[batch, groups, None, keys])
    result = b.op("MatMul", weights, value, dtype=dtype, shape=[batch, groups, None, site.v_head_size])
    if each > 1:
        shape = b.join(b.ints(0, heads), b.size(inputs.query, 1), b.ints(site.v_head_size))
        result = b.op("Reshape", result, shape, dtype=dtype)
    turned_shape = [batch, queries, heads, site.v_head_size]
    result = b.op("Transpose", result, perm=[0, 2, 1, 3], dtype=dtype, shape=turned_shape)
    joined = b.reshape(result, (0, 0, heads * site.v_head_size), _result_shape(asked, site.v_head_size))
    return [joined, *presents]


def _masked(b: SiteBuilder, masks: MaskWriter, asked: Asked, scores: ir.Value) -> ir.Value:
    """Return the scores with softcap, bias and mask."""
    dtype, shape, site = scores.dtype, dims(scores), asked.site
    assert dtype is not None
    if site.softcap:
        cap = b.array(site.softcap, dtype)
        bounded = b.op("Tanh", b.op("Div", scores, cap, dtype=dtype, shape=shape), dtype=dtype, shape=shape)
        scores = b.op("Mul", bounded, cap, dtype=dtype, shape=shape)
    if asked.inputs.bias is not None:
        scores = b.op("Add", scores, b.cast(asked.inputs.bias, dtype), dtype=dtype, shape=shape)
    if str(asked.mask) != "full":
        low = b.array(fill(asked.dtype), dtype)
        scores = b.op("Where", masks.attend(asked, asked.mask), scores, low, dtype=dtype, shape=shape)
    return scores


def _softmax(b: SiteBuilder, asked: Asked, scores: ir.Value) -> ir.Value:
    """Return the weights of the keys, of which a sink takes its share."""
    dtype, sink, heads = scores.dtype, asked.inputs.sink, asked.site.q_heads
    if sink is None:
        return b.op("Softmax", scores, axis=-1, dtype=dtype, shape=dims(scores))
    assert dtype is not None
    column = b.reshape(b.cast(sink, dtype), (1, heads, 1, 1), [1, heads, 1, 1])
    shape = b.join(b.size(asked.inputs.query, 0), b.ints(heads), b.size(asked.inputs.query, 1), b.ints(1))
    batch, queries = asked.lengths.batch, asked.lengths.queries
    column = b.op("Expand", column, shape, dtype=dtype, shape=[batch, heads, queries, 1])
    joined = b.concat([scores, column], 3, [batch, heads, queries, None])
    weights = b.op("Softmax", joined, axis=-1, dtype=dtype, shape=dims(joined))
    return b.op("Slice", weights, b.ints(0), b.ints(-1), b.ints(3), dtype=dtype, shape=dims(scores))


def _keys(b: SiteBuilder, masks: MaskWriter, asked: Asked) -> ir.Value:
    return masks.sizes(asked)[1]


def _by_head(b: SiteBuilder, value: ir.Value, heads: int, size: int) -> ir.Value:
    batch, length = dim(value, 0), dim(value, 1)
    split = b.reshape(value, (0, 0, heads, size), [batch, length, heads, size])
    return b.op("Transpose", split, perm=[0, 2, 1, 3], dtype=value.dtype, shape=[batch, heads, length, size])


def _result_shape(asked: Asked, size: int) -> list[Dim]:
    return [asked.lengths.batch, asked.lengths.queries, asked.site.q_heads * size]


_EMITTERS: dict[str, Callable[[SiteBuilder, MaskWriter, Kernel, Asked, str], list[ir.Value]]] = {
    ATTENTION: _attention,
    MULTI_HEAD: _multi_head,
    GROUP_QUERY: _group_query,
    DECOMPOSED: _decomposed,
}
