"""A file that computes in float64: by the reference evaluator, with double weights and inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as passes

from ...export.cases.draw import is_float
from ...export.errors import ExportError, InspectError
from ...export.files import bytes_of
from ...export.load_model import load_model
from ...export.twins import evaluator
from ..errors import Refused

__all__ = ["in_float64"]

Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
# The evaluator holds all weights, twice as long.
MOST_BYTES = 1 << 29
DOUBLE = ir.DataType.DOUBLE


def in_float64(model: str | os.PathLike[str] | bytes) -> Run | None:
    """Return what runs a file in float64; None if it is too large, or isn't a model."""
    try:
        loaded, _ = load_model(model)
    except InspectError:
        return None
    if bytes_of(loaded) > MOST_BYTES:
        return None
    passes.InlinePass()(loaded)
    passes.ShapeInferencePass()(loaded)
    _Widening(loaded)
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


class _Widening:
    """A model whose weights and inputs are made double, and all that is computed of them.

    What is computed of integers and small constants alone, such as the bucket of a distance, keeps its type: in another
    one a logarithm that falls on a whole number chooses another bucket, which is no rounding.
    """

    def __init__(self, model: ir.Model) -> None:
        self.wide: set[ir.Value] = set()
        for graph in (model.graph, *model.graph.subgraphs()):
            for value in graph.initializers.values():
                tensor = value.const_value
                if tensor is not None and _is_float(value) and len(tensor.shape) > 1:
                    value.const_value = ir.tensor(tensor.numpy().astype(np.float64), name=value.name)
                    self._widen(value)
        for value in filter(_is_float, model.graph.inputs):
            self._widen(value)
        self._graph(model.graph)

    def _widen(self, value: ir.Value) -> None:
        # Values may share the type that they have.
        value.type = ir.TensorType(DOUBLE)
        self.wide.add(value)

    def _graph(self, graph: ir.Graph) -> None:
        for node in list(graph):
            inner = [one for attribute in node.attributes.values() for one in _graphs(attribute)]
            for one in inner:
                self._graph(one)
                # Branches give one type.
                for place, value in enumerate(one.outputs):
                    if _is_float(value) and value not in self.wide:
                        one.outputs[place] = self._cast(value, one)
            if not any(value in self.wide for value in node.inputs) and not inner:
                continue
            for place, given in enumerate(node.inputs):
                if given is not None and _is_float(given) and given not in self.wide:
                    node.replace_input_with(place, self._cast(given, graph, node))
            to = node.attributes.get("to")
            if node.op_type == "Cast" and to is not None and ir.DataType(to.as_int()).is_floating_point():
                node.attributes["to"] = ir.AttrInt64("to", int(DOUBLE))
            for value in filter(_is_float, node.outputs):
                self._widen(value)

    def _cast(self, value: ir.Value, graph: ir.Graph, before: ir.Node | None = None) -> ir.Value:
        cast = ir.node("Cast", [value], {"to": int(DOUBLE)})
        if before is None:
            graph.append(cast)
        else:
            graph.insert_before(before, cast)
        self._widen(cast.outputs[0])
        cast.outputs[0].name = f"{value.name}.double.{len(self.wide)}"
        return cast.outputs[0]


def _graphs(attribute: ir.Attr) -> list[ir.Graph]:
    return [attribute.as_graph()] if attribute.type == ir.AttributeType.GRAPH else []


def _is_float(value: ir.Value | None) -> bool:
    return value is not None and value.dtype is not None and value.dtype.is_floating_point()
