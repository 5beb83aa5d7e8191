"""New nodes of a lowered graph: operators whose results carry their types and shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from ..builder import Builder
from .asked import Dim, dim

__all__ = ["SiteBuilder", "dims"]


class SiteBuilder(Builder):
    """Nodes to be inserted before the node of a site, site after site; constants are made once for all."""

    def array(self, numbers: Any, dtype: ir.DataType) -> ir.Value:
        """Return a constant of a type."""
        return self.constant(numbers, dtype.numpy())

    def size(self, value: ir.Value, axis: int) -> ir.Value:
        """Return a size of a value, int64 [1]: a constant where the graph fixes it."""
        known = dim(value, axis)
        return self.ints(known) if isinstance(known, int) else self.dimension(value, axis)

    def concat(self, parts: Sequence[ir.Value], axis: int, shape: Sequence[Dim]) -> ir.Value:
        """Join values along an axis."""
        return self.op("Concat", *parts, axis=axis, shape=shape)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return a value in a type."""
        return value if value.dtype == dtype else self.op("Cast", value, to=dtype, dtype=dtype, shape=dims(value))

    def reshape(self, value: ir.Value, sizes: Sequence[int], shape: Sequence[Dim]) -> ir.Value:
        """Reshape a value; sizes are those of the operator, 0 to keep one."""
        return self.op("Reshape", value, self.ints(*sizes), shape=shape)

    def operator(
        self,
        name: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any],
        shapes: Sequence[Sequence[Dim]],
        domain: str = "",
    ) -> list[ir.Value]:
        """Add an operator of an output for each shape; attributes of 0 are left out, and so are missing last inputs."""
        given = list(inputs)
        while given[-1] is None:
            given.pop()
        stated = {key: value for key, value in attributes.items() if value}
        outputs = self.outputs(len(shapes), name, *given, domain=domain, **stated)
        for value, shape in zip(outputs, shapes, strict=True):
            value.shape = ir.Shape(shape)
        return list(outputs)

    def copy(self, graph: ir.Graph, inputs: Mapping[str, ir.Value]) -> ir.Value:
        """Add the nodes of a graph of one output, with other values for its inputs."""
        made: dict[ir.Value, ir.Value] = {value: inputs[str(value.name)] for value in graph.inputs}
        for node in graph:
            operands = [None if value is None else made[value] for value in node.inputs]
            copied = self.add(ir.Node(node.domain, node.op_type, operands, node.attributes.values(), num_outputs=1))
            made[node.outputs[0]] = copied.outputs[0]
        return made[graph.outputs[0]]

    def flush(self, before: ir.Node, name: str) -> None:
        """Insert what was made before a node, named for a site and said to come from where the node does."""
        for number, node in enumerate(self.nodes):
            node.name = f"{name}/{node.op_type}_{number}"
            node.metadata_props.update(before.metadata_props)
        assert before.graph is not None
        before.graph.insert_before(before, self.nodes)
        self.nodes = []


def dims(value: ir.Value) -> list[Dim] | None:
    """Return the sizes of a value, or their names; None if nothing is known."""
    return None if value.shape is None else [dim(value, axis) for axis in range(len(value.shape))]
