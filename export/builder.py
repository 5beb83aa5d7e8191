"""New nodes of a graph, written as calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from .sites_metadata import SITE_KEY

__all__ = ["MICROSOFT", "Builder", "like", "take_over"]

# The domain of ONNX Runtime's own operators.
MICROSOFT = "com.microsoft"


class Builder:
    """Collects nodes; whoever made it puts them into a graph.

    Parameters
    ----------
    site : str or None
        The attention that the nodes belong to: written on each as ``maskport.site``.
    """

    def __init__(self, site: str | None = None) -> None:
        self.nodes: list[ir.Node] = []
        self.site = site
        self._constants: dict[tuple[Any, ...], ir.Value] = {}

    def add(self, node: ir.Node) -> ir.Node:
        """Add a node that was made elsewhere."""
        if self.site is not None:
            node.metadata_props[SITE_KEY] = self.site
        self.nodes.append(node)
        return node

    def op(
        self,
        name: str,
        /,
        *inputs: ir.Value | None,
        domain: str = "",
        dtype: ir.DataType | None = None,
        shape: Sequence[int | str | ir.SymbolicDim | None] | None = None,
        **attributes: Any,
    ) -> ir.Value:
        """Add a node with one output, whose type is the first input's unless `dtype` says another."""
        value = self.outputs(1, name, *inputs, domain=domain, dtype=dtype, **attributes)[0]
        if shape is not None:
            value.shape = ir.Shape(shape)
        return value

    def outputs(
        self,
        number: int,
        name: str,
        /,
        *inputs: ir.Value | None,
        domain: str = "",
        dtype: ir.DataType | None = None,
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        """Add a node with several outputs of one type."""
        converted = ir.convenience.convert_attributes(attributes) if attributes else ()
        node = self.add(ir.Node(domain, name, inputs, converted, num_outputs=number))
        source = next((v for v in inputs if v is not None), None)
        found = dtype if dtype is not None else source.dtype if source is not None else None
        for value in node.outputs:
            value.type = None if found is None else ir.TensorType(found)
        return node.outputs

    def constant(self, array: Any, dtype: Any = None) -> ir.Value:
        """Return a constant, made once."""
        made = np.asarray(array, dtype)
        key = (str(made.dtype), made.shape, made.tobytes())
        if key not in self._constants:
            tensor = ir.tensor(made)
            self._constants[key] = self.op("Constant", dtype=tensor.dtype, shape=made.shape, value=tensor)
        return self._constants[key]

    def ints(self, *numbers: int) -> ir.Value:
        """Return a constant of integers, int64 [n]."""
        return self.constant(np.array(numbers, np.int64))

    def integer(self, number: int) -> ir.Value:
        """Return a constant integer, int64 []."""
        return self.constant(np.int64(number))

    def dimension(self, value: ir.Value, axis: int) -> ir.Value:
        """Return a length as int64 [1]."""
        return self.op("Shape", value, dtype=ir.DataType.INT64, start=axis, end=axis + 1)

    def join(self, *parts: ir.Value) -> ir.Value:
        """Return vectors of integers, one after the other."""
        return self.op("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def graph(self, outputs: Sequence[ir.Value], inputs: Sequence[ir.Value] = (), name: str = "branch") -> ir.Graph:
        """Return the nodes as the body of another node."""
        return ir.Graph(list(inputs), list(outputs), nodes=self.nodes, name=name)


def like(value: ir.Value, source: ir.Value) -> ir.Value:
    """Give a value the type and the shape of another, and return it."""
    # Copies of a model share type objects, so that a type must not be changed where it is.
    value.type = None if source.dtype is None else ir.TensorType(source.dtype)
    value.shape = source.shape
    return value


def take_over(old: ir.Value, new: ir.Value) -> None:
    """Let a value take another's place, and its name if it is an output of the model."""
    name, is_output = old.name, old.is_graph_output()
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    if is_output:
        old.name, new.name = f"{name}.source", name
