"""The real tokens of a padded batch as the caller gives them, so that nothing is read back from the device.

Which tokens are kept and how many of each row are two more inputs of the model, that the host computes from the mask.
Everything else follows from them on the device. The operators here keep apart what is known on the host, lengths, from
values on the device: each meeting would be a copy between them, and forbid a CUDA graph.
"""

from __future__ import annotations

import onnx_ir as ir

from ..builder import Builder
from .exits import Refused
from .host_inputs import BUCKET, lengths_name, tokens_name
from .tokens import Tokens, real_tokens

__all__ = ["host_tokens_of"]

BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64


def host_tokens_of(build: Builder, graph: ir.Graph, mask: ir.Value, pad: int) -> Tokens:
    """Add the inputs that tell the tokens where `mask` [B, S] is not `pad`, and write what follows from them.

    Raises
    ------
    Refused
        If the mask is no input, so that the host doesn't have it.
    """
    if mask not in graph.inputs:
        raise Refused(f"packing='host' reads the mask where it is given, and {mask.name!r} is computed in the graph")
    names = tokens_name(str(mask.name)), lengths_name(str(mask.name))
    if taken := {value.name for value in graph.inputs}.intersection(names):
        raise Refused(f"the model has an input {min(map(str, taken))!r} already")
    assert mask.shape is not None
    kind = ir.TensorType(INT64)
    flat = ir.Value(name=names[0], type=kind, shape=ir.Shape([f"tokens_of_{mask.name}"]))
    kept = ir.Value(name=names[1], type=kind, shape=ir.Shape([mask.shape[0]]))
    graph.inputs.extend([flat, kept])
    b = build
    batch, length = b.dimension(mask, 0), b.dimension(mask, 1)
    count, shape = b.op("Squeeze", batch), b.join(batch, length)
    rows = b.op("Unsqueeze", b.op("Range", b.integer(0), count, b.integer(1), dtype=INT64), b.ints(1))
    columns = b.op("Range", b.integer(0), b.op("Squeeze", length), b.integer(1), dtype=INT64)
    row, position = (_of_tokens(b, b.op("Expand", places, shape), flat) for places in (rows, columns))
    valid = real_tokens(b, mask, pad)
    real_keys = b.op("ReduceSum", b.op("Cast", valid, to=INT64, dtype=INT64), b.ints(1), keepdims=0)
    ends = b.op("CumSum", kept, b.integer(0))
    starts = b.op("Sub", ends, kept)
    return Tokens(
        row=row,
        position=position,
        flat=flat,
        pair=b.op("Concat", b.op("Unsqueeze", row, b.ints(1)), b.op("Unsqueeze", position, b.ints(1)), axis=1),
        real=_of_tokens(b, valid, flat),
        starts=starts,
        ends=ends,
        # A row without a key reads its own first token: finite, and no row that has a key.
        keys_end=b.op("Add", starts, b.op("Max", real_keys, b.integer(1))),
        batch=batch,
        length=length,
        size=b.op("Mul", batch, length),
        count=count,
        full=b.constant(False),
        extra=ir.Value(name="extra", type=ir.TensorType(BOOL)),
        valid=valid,
        empty=b.op("Unsqueeze", b.op("Equal", real_keys, b.integer(0), dtype=BOOL), b.ints(1)),
        dummy=b.op("Less", flat, b.integer(0), dtype=BOOL),
        most_dummies=BUCKET,
    )


def _of_tokens(b: Builder, value: ir.Value, flat: ir.Value) -> ir.Value:
    """Return a value [B, S] of the tokens; a dummy, -1, has the last."""
    return b.op("Gather", b.op("Reshape", value, b.ints(-1)), flat, axis=0)
