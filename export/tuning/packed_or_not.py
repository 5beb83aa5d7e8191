"""A whole model with its padding left out and with it, measured."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ...models.masks import Mask
from ..cases.draw import Size
from ..errors import first_line
from ..proof.interface import interface_of
from ..proof.side import side_of
from .answer import Seconds
from .stopwatch import interleaved, loaded
from .workload import Workload

__all__ = ["compared", "structure"]


def structure(model: ir.Model) -> str:
    """Return a digest of what a model computes: its nodes, and the shapes of its weights, not their values."""
    digest = hashlib.sha256()
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        names = [value.name if value is not None else "" for value in (*node.inputs, *node.outputs)]
        tensors = (ir.AttributeType.TENSOR, ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
        attributes = [(a.name, str(a.value)) for a in node.attributes.values() if a.type not in tensors]
        digest.update(repr((node.domain, node.op_type, names, attributes)).encode())
    for name, value in sorted(model.graph.initializers.items()):
        digest.update(repr((name, str(value.dtype), str(value.shape))).encode())
    digest.update(repr([(value.name, str(value.dtype), str(value.shape)) for value in model.graph.inputs]).encode())
    return digest.hexdigest()[:32]


def compared(
    source: ir.Model, variants: Mapping[str, ir.Model], masks: Sequence[Mask], workload: Workload
) -> tuple[Seconds, list[str]]:
    """Return the seconds of each variant of a source at the shapes of a workload, and why a shape was not run.

    Raises
    ------
    ProofFailed
        If no inputs can be drawn for the source.
    """
    interface = interface_of(source, side_of(source, "the source"), masks, (), 0)
    layout, seconds, left_out = interface.layout, Seconds(), []
    sessions = {name: loaded(model) for name, model in variants.items()}
    for batch, length in workload.shapes:
        inputs = dict(interface.draw(interface.sizes(Size(batch, length, length)), "ones", 0).inputs)
        for name in layout.masks:
            pad = np.asarray(layout.inputs[name].pad, inputs[name].dtype)
            inputs[name] = np.where(workload.keep(*inputs[name].shape), inputs[name], pad)
        try:
            seconds[f"{batch}x{length}"] = interleaved(sessions, inputs, workload.seconds)
        except Exception as error:  # ONNX Runtime's errors have no common class but this.
            left_out.append(f"{batch}x{length} was not run: {first_line(error)}")
    return seconds, left_out
