"""Set the rows of a model's outputs that are no real token to zero."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from ...models.masks import Mask
from ..builder import Builder, like
from ..lowering.canonical import Inputs, Site, is_site
from ..symbolic.interpreter import Interpreter
from ..symbolic.values import NotFollowed
from .exits import Refused

__all__ = ["zero_padding"]


def zero_padding(model: ir.Model, paddings: Sequence[Mask]) -> int:
    """Set padding rows of the outputs to zero, in place, for canonical attention that is left; return how many outputs.

    An output [B, S, ...] has padding rows if a padding mask [B, S] of attention within its sequence has these lengths.

    Raises
    ------
    Refused
        If two masks have the same lengths: which one the rows of an output follow is not in the graph.
    """
    x = Interpreter(model.graph)
    masks: dict[tuple[object, ...], tuple[Mask, ir.Value]] = {}
    for node in model.graph:
        if not is_site(node):
            continue
        site, inputs = Site.of(node), Inputs.of(node)
        for padding in paddings:
            (name,) = padding.tensors
            if site.cross or name not in inputs.tensors or not site.mask.implies(padding):
                continue
            value = inputs.tensors[name]
            known = masks.setdefault(x.shape(value), (padding, value))
            if known != (padding, value):
                raise Refused(f"`{known[0]}` and `{padding}` have the same lengths: whose the padding rows are is open")
    build, changed = Builder(), 0
    for output in list(model.graph.outputs):
        try:
            lengths = x.shape(output)[:2]
        except NotFollowed:
            continue
        if len(lengths) < 2 or lengths not in masks:
            continue
        padding, value = masks[lengths]
        made = like(_zeroed(build, output, value, padding._expr[2]), output)
        name = str(output.name)
        for place, graph_output in enumerate(model.graph.outputs):
            if graph_output is output:
                model.graph.outputs[place] = made
        output.name, made.name = f"{name}.all_rows", name
        changed += 1
    model.graph.extend(build.nodes)
    return changed


def _zeroed(b: Builder, output: ir.Value, mask: ir.Value, pad: int) -> ir.Value:
    boolean = ir.DataType.BOOL
    assert mask.dtype is not None
    assert output.dtype is not None
    if mask.dtype == boolean:
        hidden = mask if pad else b.op("Not", mask)
    else:
        hidden = b.op("Equal", mask, b.constant(pad, mask.dtype.numpy()), dtype=boolean)
    rank = len(output.shape) if output.shape is not None else 2
    if rank > 2:
        hidden = b.op("Unsqueeze", hidden, b.ints(*range(2, rank)))
    return b.op("Where", hidden, b.constant(0, output.dtype.numpy()), output, dtype=output.dtype)
