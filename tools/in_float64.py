"""A file that computes in float64: by the reference evaluator, with all its floating-point numbers made double."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as passes

from ..export.cases.draw import is_float
from ..export.errors import ExportError
from ..export.files import bytes_of
from ..export.inspector import InspectError, load_model
from ..export.twins import evaluator
from .errors import Refused

__all__ = ["in_float64"]

Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
# The evaluator holds all weights, twice as long.
MOST_BYTES = 1 << 29
DOUBLE = ir.DataType.DOUBLE
# What they round to is what they are for.
CASTS = {"Cast": "to", "EyeLike": "dtype"}


def in_float64(model: str | os.PathLike[str] | bytes) -> Run | None:
    """Return what runs a file in float64; None if it is too large, or isn't a model."""
    try:
        loaded, _ = load_model(model)
    except InspectError:
        return None
    if bytes_of(loaded) > MOST_BYTES:
        return None
    passes.InlinePass()(loaded)
    _convert(loaded)
    names = [str(value.name) for value in loaded.graph.outputs]
    wanted = [str(value.name) for value in loaded.graph.inputs]
    try:
        ready = evaluator(ir.to_proto(loaded))
    except (ExportError, RuntimeError, TypeError, ValueError):
        return None

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        given = {name: inputs[name] for name in wanted}
        given = {name: array.astype(np.float64) if is_float(array) else array for name, array in given.items()}
        try:
            with np.errstate(all="ignore"):
                return dict(zip(names, map(np.asarray, ready.run(names, given)), strict=True))
        except Exception as error:
            # An operator that the evaluator lacks, or that has no float64.
            raise Refused(str(error)) from error

    return run


def _convert(model: ir.Model) -> None:
    graphs = [model.graph, *model.graph.subgraphs()]
    for graph in graphs:
        for value in (*graph.inputs, *graph.outputs):
            _double(value)
        for value in graph.initializers.values():
            if value.const_value is not None and value.const_value.dtype.is_floating_point():
                value.const_value = ir.tensor(value.const_value.numpy().astype(np.float64), name=value.name)
                _double(value)
    for node in model.graph.all_nodes():
        for value in node.outputs:
            _double(value)
        if node.domain == "" and node.op_type in CASTS:
            name = CASTS[node.op_type]
            attribute = node.attributes.get(name)
            if attribute is not None and ir.DataType(attribute.as_int()).is_floating_point():
                node.attributes[name] = ir.AttrInt64(name, int(DOUBLE))
        for name, attribute in list(node.attributes.items()):
            if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype.is_floating_point():
                tensor = ir.tensor(attribute.as_tensor().numpy().astype(np.float64))
                node.attributes[name] = ir.AttrTensor(name, tensor)
            elif node.op_type == "Constant" and name in ("value_float", "value_floats"):
                numbers = attribute.value
                del node.attributes[name]
                node.attributes["value"] = ir.AttrTensor("value", ir.tensor(np.array(numbers, np.float64)))


def _double(value: ir.Value) -> None:
    if value.dtype is not None and value.dtype.is_floating_point():
        value.dtype = DOUBLE
