"""Write nodes into a graph: operators with the types and shapes of what they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from .asked import Dim, dim

__all__ = ["Builder"]

MICROSOFT = "com.microsoft"


class Builder:
    """Nodes to be inserted before a node of a graph, in the order in which they were made.

    Values carry their types and shapes, since shape inference doesn't know all operators.
    """

    def __init__(self) -> None:
        self._tape = ir.tape.Tape()

    def op(
        self,
        name: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        dtype: ir.DataType | None,
        shape: Sequence[Dim] | None = None,
        domain: str = "",
    ) -> ir.Value:
        """Add a node of one output."""
        value = self._tape.op(name, _trimmed(inputs), attributes, domain=domain)
        return _typed(value, dtype, shape)

    def ops(
        self,
        name: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any],
        *,
        dtype: ir.DataType | None,
        shapes: Sequence[Sequence[Dim]],
        domain: str = "",
    ) -> list[ir.Value]:
        """Add a node of an output for each shape."""
        values = self._tape.op_multi_out(name, _trimmed(inputs), attributes, num_outputs=len(shapes), domain=domain)
        return [_typed(value, dtype, shape) for value, shape in zip(values, shapes, strict=True)]

    def ints(self, *numbers: int) -> ir.Value:
        """Add a constant int64 [n]."""
        return self.op("Constant", [], {"value_ints": numbers}, dtype=ir.DataType.INT64, shape=[len(numbers)])

    def array(self, numbers: Any, dtype: ir.DataType) -> ir.Value:
        """Add a constant of a type."""
        array = np.asarray(numbers, dtype.numpy())
        return self.op("Constant", [], {"value": ir.tensor(array)}, dtype=dtype, shape=array.shape)

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """Return a size of a value, int64 [1]: a constant where the graph fixes it."""
        known = dim(value, axis)
        if isinstance(known, int):
            return self.ints(known)
        return self.op("Shape", [value], {"start": axis, "end": axis + 1}, dtype=ir.DataType.INT64, shape=[1])

    def concat(self, parts: Sequence[ir.Value], axis: int, shape: Sequence[Dim] | None = None) -> ir.Value:
        """Join values along an axis."""
        if len(parts) == 1:
            return parts[0]
        return self.op("Concat", parts, {"axis": axis}, dtype=parts[0].dtype, shape=shape)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return a value in a type."""
        if value.dtype == dtype:
            return value
        return self.op("Cast", [value], {"to": dtype}, dtype=dtype, shape=_dims(value))

    def reshape(self, value: ir.Value, sizes: Sequence[int], shape: Sequence[Dim]) -> ir.Value:
        """Reshape a value; sizes are those of the operator, 0 to keep one."""
        return self.op("Reshape", [value, self.ints(*sizes)], dtype=value.dtype, shape=shape)

    def copy(self, graph: ir.Graph, inputs: Mapping[str, ir.Value]) -> ir.Value:
        """Add the nodes of a graph of one output, with other values for its inputs."""
        made: dict[ir.Value, ir.Value] = {value: inputs[str(value.name)] for value in graph.inputs}
        for node in graph:
            operands = [None if value is None else made[value] for value in node.inputs]
            value = self._tape.op(node.op_type, operands, {a.name: a for a in node.attributes.values()})
            made[node.outputs[0]] = value
        return made[graph.outputs[0]]

    def flush(self, before: ir.Node, name: str) -> None:
        """Insert what was made before a node, named for a site and said to come from where the node does."""
        for number, node in enumerate(self._tape.nodes):
            node.name = f"{name}/{node.op_type}_{number}"
            node.metadata_props.update(before.metadata_props)
        assert before.graph is not None
        before.graph.insert_before(before, self._tape.nodes)
        self._tape = ir.tape.Tape()


def _trimmed(inputs: Sequence[ir.Value | None]) -> list[ir.Value | None]:
    """Drop the inputs at the end that are not given."""
    kept = list(inputs)
    while kept and kept[-1] is None:
        kept.pop()
    return kept


def _typed(value: ir.Value, dtype: ir.DataType | None, shape: Sequence[Dim] | None) -> ir.Value:
    if dtype is not None:
        value.dtype = dtype
    value.shape = None if shape is None else ir.Shape(shape)
    return value


def _dims(value: ir.Value) -> list[Dim] | None:
    return None if value.shape is None else [dim(value, axis) for axis in range(len(value.shape))]
