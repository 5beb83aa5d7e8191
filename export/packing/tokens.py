"""The real tokens of a padded batch: T of B * S, in rows, as indices that are computed in the graph.

Shapes: B batch, S sequence, T tokens that are kept. Of each row first come its real tokens, in their order, then those
that are kept for another reason and are no keys: a token that an output picks by its place, and the first of a row that
has no real token, so that no row is without one.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from ..builder import Builder

__all__ = ["Tokens", "put_back", "real_tokens", "tokens_of", "write_extra"]


@dataclass(frozen=True)
class Tokens:
    """Indices of kept tokens.

    Attributes
    ----------
    row, position, flat : ir.Value
        int64 [T]: b, s and b * S + s of each.
    pair : ir.Value
        int64 [T, 2]: b and s.
    real : ir.Value
        bool [T]: whether it is a real token.
    starts, ends, keys_end : ir.Value
        int64 [B]: where a row's tokens begin and end among the T, and where its keys end.
    batch, length, size : ir.Value
        int64 [1]: B, S and B * S.
    count : ir.Value
        int64 []: B.
    full : ir.Value
        bool []: whether every token is real.
    extra : ir.Value
        bool [B, S]: what is kept for another reason; a placeholder, made when all reasons are known.
    valid : ir.Value
        bool [B, S]: which tokens are real.
    empty : ir.Value
        bool [B, 1]: rows without a real token.
    dummy : ir.Value or None
        bool [T]: which are no tokens, but there to make T a round number; the last ones. Their `flat` is -1, and of the
        others they have those of the last place. None if there are none.
    most_dummies : int
        How many there may be, if that is more than S.
    """

    row: ir.Value
    position: ir.Value
    flat: ir.Value
    pair: ir.Value
    real: ir.Value
    starts: ir.Value
    ends: ir.Value
    keys_end: ir.Value
    batch: ir.Value
    length: ir.Value
    size: ir.Value
    count: ir.Value
    full: ir.Value
    extra: ir.Value
    valid: ir.Value
    empty: ir.Value
    dummy: ir.Value | None = None
    most_dummies: int = 0


def put_back(
    build: Builder, tokens: Tokens, value: ir.Value, nothing: ir.Value, rest: ir.Value | None = None
) -> ir.Value:
    """Write the values [T, ...] of the tokens at their places: [B * S, ...], with `nothing` elsewhere.

    Parameters
    ----------
    rest : ir.Value or None
        int64: lengths of the other axes, if there are any.
    """
    b, size = build, tokens.size
    if tokens.dummy is not None:
        # All dummies go to one place more, which is cut off.
        size = b.op("Add", size, b.ints(1))
    empty = b.op("Expand", nothing, size if rest is None else b.join(size, rest))
    whole = b.op("ScatterND", empty, b.op("Unsqueeze", tokens.flat, b.ints(1)), value)
    return whole if tokens.dummy is None else b.op("Slice", whole, b.ints(0), tokens.size, b.ints(0))


def real_tokens(build: Builder, mask: ir.Value, pad: int) -> ir.Value:
    """Return where `mask` is not `pad`, bool of its shape."""
    if mask.dtype == ir.DataType.BOOL:
        return build.op("Not", mask) if pad else mask
    assert mask.dtype is not None
    hidden = build.op("Equal", mask, build.constant(pad, mask.dtype.numpy()), dtype=ir.DataType.BOOL)
    return build.op("Not", hidden)


def tokens_of(build: Builder, mask: ir.Value, pad: int) -> Tokens:
    """Write the indices of the tokens where `mask` [B, S] is not `pad`."""
    b, i64 = build, ir.DataType.INT64
    valid = real_tokens(b, mask, pad)
    batch, length = b.dimension(mask, 0), b.dimension(mask, 1)
    real_keys = b.op("ReduceSum", b.op("Cast", valid, to=i64, dtype=i64), b.ints(1), keepdims=0)
    empty = b.op("Unsqueeze", b.op("Equal", real_keys, b.integer(0), dtype=ir.DataType.BOOL), b.ints(1))
    extra = ir.Value(name="extra", type=ir.TensorType(ir.DataType.BOOL))
    both = b.op("Concat", b.op("Unsqueeze", valid, b.ints(1)), b.op("Unsqueeze", extra, b.ints(1)), axis=1)
    found = b.op("NonZero", both, dtype=i64)
    row, which, position = (b.op("Gather", found, b.integer(axis), axis=0) for axis in range(3))
    pair = b.op("Transpose", b.op("Gather", found, b.ints(0, 2), axis=0), perm=[1, 0])
    size = b.op("Mul", batch, length)
    # Looked up and not computed: the length is known on the host, and would be copied to the device.
    numbers = b.op("Range", b.integer(0), b.op("Squeeze", size), b.integer(1), dtype=i64)
    flat = b.op("GatherND", b.op("Reshape", numbers, b.join(batch, length)), pair, dtype=i64)
    extras = b.op("ReduceSum", b.op("Cast", extra, to=i64, dtype=i64), b.ints(1), keepdims=0)
    ends = b.op("CumSum", b.op("Add", real_keys, extras), b.integer(0))
    total = b.op("ReduceSum", real_keys, b.ints(0), keepdims=1)
    return Tokens(
        row=row,
        position=position,
        flat=flat,
        pair=pair,
        real=b.op("Equal", which, b.integer(0), dtype=ir.DataType.BOOL),
        starts=b.op("Sub", b.op("Sub", ends, extras), real_keys),
        ends=ends,
        # A row without a key reads its own first token: finite, and no row that has a key.
        keys_end=b.op(
            "Max",
            b.op("Sub", ends, extras),
            b.op("Sub", ends, b.op("Sub", b.op("Add", extras, real_keys), b.integer(1))),
        ),
        batch=batch,
        length=length,
        size=size,
        count=b.op("Squeeze", batch),
        # A batch of none is not full: attention operators refuse one.
        full=b.op("Squeeze", b.op("Equal", total, b.op("Max", size, b.ints(1)), dtype=ir.DataType.BOOL)),
        extra=extra,
        valid=valid,
        empty=empty,
    )


def write_extra(build: Builder, tokens: Tokens, places: tuple[int, ...]) -> ir.Value:
    """Write what is kept beside the real tokens: the tokens at `places` (-1 is the last), and one of each empty row."""
    b = build
    positions = b.op("Range", b.integer(0), b.op("Squeeze", tokens.length), b.integer(1), dtype=ir.DataType.INT64)
    first = b.op("Equal", positions, b.integer(0), dtype=ir.DataType.BOOL)
    extra = b.op("And", first, tokens.empty)
    for place in places:
        at = b.integer(place) if place >= 0 else b.op("Add", tokens.length, b.integer(place))
        kept = b.op("And", b.op("Equal", positions, at, dtype=ir.DataType.BOOL), b.op("Not", tokens.valid))
        extra = b.op("Or", extra, kept)
    return extra
