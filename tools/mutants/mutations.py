"""The faults that are planted: each is a mistake that an exporter or an optimizer has made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...export.builder import Builder
from ...models.masks import Causal, Full, Mask, Prefix, QueryPadding, Window, past
from .plant import Change, Planted, Rewrite, Scores

BOOL, FLOAT16, INT64 = ir.DataType.BOOL, ir.DataType.FLOAT16, ir.DataType.INT64
# Of the mask that is frozen: shorter than what is tried, longer than nothing.
TRACED_LENGTH = 8
# A fill that looks large, and leaves a masked key e^-10 of an attended one.
WEAK = -10.0


@dataclass(frozen=True)
class Mutation:
    """A fault.

    Attributes
    ----------
    name
        What is wrong.
    change
        Changes the canonical attention, or returns None where the fault doesn't apply.
    rewrite
        Changes the scores that were written out.
    empty_rows_alone
        Whether it changes nothing but rows without a key.
    """

    name: str
    change: Change
    rewrite: Rewrite | None = None
    empty_rows_alone: bool = False


def _masks(planted: Planted) -> Planted | None:
    """Return it as it is, if it masks anything."""
    return None if planted.site.mask == Full() else planted


def _each(planted: Planted, change: Callable[[Mask], Mask]) -> Mask:
    """Return the mask with each of its conjuncts changed."""
    mask = Full()
    for conjunct in planted.site.mask.conjuncts:
        mask = mask & change(conjunct)
    return mask


def _is_window(mask: Mask) -> bool:
    return not mask.tensors and mask != Full() and mask == Window(*mask.window)


def _other(planted: Planted, mask: Mask) -> Planted | None:
    """Return it with another mask, if the text of it is another."""
    return None if str(mask) == str(planted.site.mask) else planted.masked(mask)


def _dropped(planted: Planted) -> Planted | None:
    return _other(planted, Full())


def _unpadded(planted: Planted) -> Planted | None:
    mask = _each(planted, lambda mask: Full() if str(mask).startswith("padding(") else mask)
    # Without anything else it is the whole mask that is dropped.
    return None if mask == Full() else _other(planted, mask)


def _inverted(planted: Planted) -> Planted | None:
    return None if planted.site.mask == Full() else planted.masked(~planted.site.mask)


def _transposed(planted: Planted) -> Planted | None:
    if planted.site.cross:
        return None
    turned: dict[str, ir.Value] = {}

    def turn(mask: Mask) -> Mask:
        text, names = str(mask), list(mask.tensors)
        if _is_window(mask):
            left, right = mask.window
            return Window(right, left)
        if text.startswith("padding("):
            _, _, pad = text.removesuffix(")").partition(" != ")
            return QueryPadding(names[0], int(pad or 0))
        if text.startswith(("dense(", "adjacency(")):
            value = planted.inputs.tensors[names[0]]
            if value.shape is not None:
                order = list(range(len(value.shape)))
                turned[names[0]] = planted.b.op("Transpose", value, perm=[*order[:-2], order[-1], order[-2]])
        return mask

    made = planted.masked(_each(planted, turn)).reading({})
    if str(made.site.mask) == str(planted.site.mask) and not turned:
        return None
    return made.reading(turned)


def _shifted(planted: Planted) -> Planted | None:
    def shift(mask: Mask) -> Mask:
        return Window(*mask.window, past + 1) if _is_window(mask) else mask

    mask = _each(planted, shift)
    if str(mask) != str(planted.site.mask):
        return planted.masked(mask)
    b, rolled = planted.b, {}
    for name, value in planted.inputs.tensors.items():
        if value.shape is not None and len(value.shape) >= 2:
            last = b.ints(len(value.shape) - 1)
            rest = b.op("Slice", value, b.ints(1), b.ints(np.iinfo(np.int64).max), last)
            rolled[name] = b.op("Concat", rest, b.op("Slice", value, b.ints(0), b.ints(1), last), axis=-1)
            rolled[name].shape = value.shape
    return planted.reading(rolled) if rolled else None


def _resized(by: int) -> Change:
    def change(planted: Planted) -> Planted | None:
        def resize(mask: Mask) -> Mask:
            if not _is_window(mask):
                return mask
            left, right = mask.window
            return Window(left + by if left > 0 else left, right + by if right > 0 else right)

        return _other(planted, _each(planted, resize))

    return change


def _bidirectional(planted: Planted) -> Planted | None:
    if not planted.site.mask.implies(Causal()):
        return None

    def open_(mask: Mask) -> Mask:
        left, _ = mask.window
        return Window(left, left) if _is_window(mask) else mask

    return _other(planted, _each(planted, open_))


def _made_causal(planted: Planted) -> Planted | None:
    return None if planted.site.mask.implies(Causal()) else planted.masked(planted.site.mask & Causal())


def _row_0(planted: Planted) -> Planted | None:
    b, first = planted.b, {}
    for name in planted.site.mask.tensors:
        value = planted.inputs.tensors[name]
        if any(str(leaf).startswith("padding(") and name in leaf.tensors for leaf in planted.site.mask.leaves):
            row = b.op("Slice", value, b.ints(0), b.ints(1), b.ints(0))
            first[name] = b.op("Expand", row, b.op("Shape", value, dtype=INT64))
            first[name].shape = value.shape
    return planted.reading(first) if first else None


def _head_0(planted: Planted) -> Planted | None:
    b, first = planted.b, {}
    for name, value in planted.inputs.tensors.items():
        if value.shape is not None and len(value.shape) == 4 and value.shape[1] == planted.site.q_heads > 1:
            first[name] = b.op("Slice", value, b.ints(0), b.ints(1), b.ints(1))
            first[name].shape = ir.Shape([value.shape[0], 1, value.shape[2], value.shape[3]])
    return planted.reading(first) if first else None


def _frozen(planted: Planted) -> Planted | None:
    return None if planted.site.mask == Full() else planted.masked(planted.site.mask & Prefix(TRACED_LENGTH))


def _unscaled(planted: Planted) -> Planted | None:
    return None if planted.site.scale == 1 else replace(planted, site=replace(planted.site, scale=1.0))


def _unbiased(planted: Planted) -> Planted | None:
    return None if planted.inputs.bias is None else replace(planted, inputs=replace(planted.inputs, bias=None))


def _swapped_heads(planted: Planted) -> Planted | None:
    site, inputs, b = planted.site, planted.inputs, planted.b
    if site.kv_heads < 2:
        return None

    def swap(value: ir.Value, size: int) -> ir.Value:
        split = b.op("Reshape", value, b.ints(0, 0, site.kv_heads, size))
        turned = b.op("Gather", split, b.ints(*reversed(range(site.kv_heads))), axis=2)
        joined = b.op("Reshape", turned, b.ints(0, 0, site.kv_heads * size))
        joined.shape = value.shape
        return joined

    key, value = swap(inputs.key, site.head_size), swap(inputs.value, site.v_head_size)
    return replace(planted, inputs=replace(inputs, key=key, value=value))


def _right_for_left(planted: Planted) -> Planted | None:
    b, lengths = planted.b, {}

    def counted(mask: Mask) -> Mask:
        text, names = str(mask), list(mask.tensors)
        if not text.startswith("padding("):
            return mask
        _, _, pad = text.removesuffix(")").partition(" != ")
        value = planted.inputs.tensors[names[0]]
        integers = value if value.dtype == INT64 else b.op("Cast", value, to=INT64, dtype=INT64)
        real = b.op("Not", b.op("Equal", integers, b.integer(int(pad or 0)), dtype=BOOL), dtype=BOOL)
        name = f"length of {names[0]}"
        lengths[name] = b.op("ReduceSum", b.op("Cast", real, to=INT64, dtype=INT64), b.ints(1), keepdims=0)
        lengths[name].shape = ir.Shape([value.shape[0] if value.shape is not None else None])
        return Prefix(name)

    mask = _each(planted, counted)
    return planted.masked(mask, lengths) if lengths else None


def _over_batch(planted: Planted) -> Planted | None:
    site, inputs, b = planted.site, planted.inputs, planted.b
    if site.cross or inputs.bias is not None or inputs.past_key is not None:
        return None

    def turn(b: Builder, value: ir.Value) -> ir.Value:
        turned = b.op("Transpose", value, perm=[1, 0, 2])
        if value.shape is not None:
            turned.shape = ir.Shape([value.shape[1], value.shape[0], value.shape[2]])
        return turned

    query, key, value = (turn(b, operand) for operand in (inputs.query, inputs.key, inputs.value))
    turned = replace(planted.masked(Full()), result=turn)
    return replace(turned, inputs=replace(turned.inputs, query=query, key=key, value=value))


def _number(value: Any, like: ir.Value) -> np.ndarray:
    assert like.dtype is not None
    return np.asarray(value, like.dtype.numpy())


def _weakened(b: Builder, scores: Scores) -> ir.Value:
    weak = b.constant(_number(WEAK, scores.before))
    fill = b.op("Where", scores.attend, b.constant(_number(0, scores.before)), weak, dtype=scores.before.dtype)
    return b.op("Add", scores.before, fill)


def _multiplied(b: Builder, scores: Scores) -> ir.Value:
    dtype = scores.before.dtype
    return b.op("Mul", scores.before, b.op("Cast", scores.attend, to=dtype, dtype=dtype))


def _half_fill(b: Builder, scores: Scores) -> ir.Value:
    hidden = b.op("Cast", b.op("Not", scores.attend, dtype=BOOL), to=FLOAT16, dtype=FLOAT16)
    # -1e9 is -inf in half.
    fill = b.op("Mul", hidden, b.constant(np.float16(-np.inf)))
    return b.op("Add", scores.before, b.op("Cast", fill, to=scores.before.dtype, dtype=scores.before.dtype))


def _infinite(b: Builder, scores: Scores) -> ir.Value:
    lowest = b.constant(_number(-np.inf, scores.before))
    return b.op("Where", scores.attend, scores.before, lowest, dtype=scores.before.dtype)


def _capped_late(b: Builder, scores: Scores) -> ir.Value | None:
    if not scores.softcap:
        return None
    cap = b.constant(_number(scores.softcap, scores.masked))
    return b.op("Mul", b.op("Tanh", b.op("Div", scores.masked, cap)), cap)


MUTATIONS = (
    Mutation("mask dropped", _dropped),
    Mutation("padding dropped", _unpadded),
    Mutation("mask inverted", _inverted),
    Mutation("mask transposed", _transposed),
    Mutation("mask shifted by one", _shifted),
    Mutation("window one too wide", _resized(1)),
    Mutation("window one too narrow", _resized(-1)),
    Mutation("causal made bidirectional", _bidirectional),
    Mutation("bidirectional made causal", _made_causal),
    Mutation("padding of row 0 for every row", _row_0),
    Mutation("mask of head 0 for every head", _head_0),
    Mutation(f"fill weakened to {WEAK:g}", _masks, _weakened),
    Mutation("mask multiplied", _masks, _multiplied),
    Mutation("mask times fill in half", _masks, _half_fill),
    Mutation(f"mask frozen at length {TRACED_LENGTH}", _frozen),
    Mutation("scale left out", _unscaled),
    Mutation("bias lost", _unbiased),
    Mutation("softcap after the mask", _masks, _capped_late),
    Mutation("KV heads swapped", _swapped_heads),
    Mutation("left padding taken for right", _right_for_left),
    Mutation("empty rows NaN", _masks, _infinite, empty_rows_alone=True),
    Mutation("attention over the batch axis", _over_batch),
)
