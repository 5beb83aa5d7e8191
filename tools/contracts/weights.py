"""No weight is NaN: what reads it can be hidden by a guard against rows without keys, and is wrong all the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from ..verdict import FAILED, Contract

NAME = "finite-weights"


def nan_weights(model: ir.Model) -> list[Contract]:
    """Return what fails if a weight or a constant of a file is NaN; nothing if none is."""
    found = [(name, count) for name, tensor in _tensors(model) if (count := _nans(tensor))]
    if not found:
        return []
    name, count = found[0]
    more = f", and {len(found) - 1} more hold some" if len(found) > 1 else ""
    why = (
        f"{count} of the numbers of {name!r} are NaN{more}: a guard against rows without keys can hide what comes of it"
    )
    return [Contract(NAME, FAILED, float(sum(count for _, count in found)), f"{why}; make the file again")]


def _tensors(model: ir.Model) -> Iterator[tuple[str, ir.TensorProtocol]]:
    for graph in model.graphs():
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                yield name, value.const_value
        for node in graph:
            attribute = node.attributes.get("value")
            if attribute is not None and attribute.type == ir.AttributeType.TENSOR:
                yield str(node.outputs[0].name), attribute.as_tensor()


def _nans(tensor: ir.TensorProtocol) -> int:
    if not tensor.dtype.is_floating_point():
        return 0
    return int(np.isnan(tensor.numpy().astype(np.float32, copy=False)).sum())
