"""Attention on all places of the padded batch, between parts that are packed."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from ..builder import like
from .packer import Packer

__all__ = ["on_all_places"]


def on_all_places(packer: Packer, node: ir.Node, operands: Sequence[ir.Value]) -> tuple[ir.Node, ir.Value]:
    """Write a canonical attention once more on other operands, and pick the tokens of its result.

    Parameters
    ----------
    operands : sequence of ir.Value
        Queries, keys and values, [B, S, E]; padding may hold anything that is finite.

    Returns
    -------
    ir.Node, ir.Value
        The new canonical node, and [T, Hq * Dv].
    """
    for value, source in zip(operands, node.inputs, strict=False):
        if source is not None and value is not source:
            value.shape = source.shape
    copy = ir.Node(node.domain, node.op_type, [*operands, *node.inputs[3:]], node.attributes.values(), num_outputs=1)
    copy.metadata_props.update(node.metadata_props)
    packer.build.add(copy)
    output = like(copy.outputs[0], node.outputs[0])
    return copy, packer.build.op("GatherND", output, packer.tokens.pair)
