"""Products of activations and constant weights, as a graph has them."""

from __future__ import annotations

__all__ = ["Projection", "projection_of"]

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from .constants import constant_tensor, is_bias, is_constant


@dataclass(frozen=True)
class Projection:
    """A product ``x @ weight + bias``: its nodes, its result, and its constants as the graph has them."""

    nodes: tuple[ir.Node, ...]
    result: ir.Value
    weight: ir.Value
    bias: ir.Value | None
    transposed: bool

    @property
    def width(self) -> int:
        """N, how many columns the product has."""
        shape = constant_tensor(self.weight).shape
        return shape.numpy()[0 if self.transposed else 1]

    @property
    def dtype(self) -> ir.DataType:
        """The element type of the weights."""
        return constant_tensor(self.weight).dtype

    def weights(self) -> np.ndarray:
        """Return [E, N]."""
        array = constant_tensor(self.weight).numpy()
        return array.T if self.transposed else array

    def biases(self) -> np.ndarray:
        """Return [N], zeros where the graph has none."""
        if self.bias is None:
            return np.zeros(self.width, self.dtype.numpy())
        return constant_tensor(self.bias).numpy().reshape(self.width)


def projection_of(node: ir.Node) -> Projection | None:
    """Read a projection that begins at a node."""
    if node.domain != "" or node.op_type not in ("MatMul", "Gemm") or not is_constant(node.inputs[1], 2):
        return None
    x, weight, (product,) = node.inputs[0], node.inputs[1], node.outputs
    if x is None or weight is None or ir.convenience.get_const_tensor(x) is not None:
        return None
    if node.op_type == "MatMul":
        found = _with_added_bias(Projection((node,), product, weight, None, False))
    else:
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        if attributes.get("transA", 0) or attributes.get("alpha", 1.0) != 1.0:
            return None
        found = Projection((node,), product, weight, bias, bool(attributes.get("transB", 0)))
        if bias is not None and not (is_bias(bias, found.width) and attributes.get("beta", 1.0) == 1.0):
            return None
    used = found.result.uses() or found.result.is_graph_output()
    return found if used else None


def _with_added_bias(bare: Projection) -> Projection:
    """Take in the Add that alone uses the product, where what it adds is constant along the last axis."""
    uses = tuple(bare.result.uses())
    if len(uses) != 1 or bare.result.is_graph_output():
        return bare
    add, index = uses[0]
    if (add.domain, add.op_type, add.graph) != ("", "Add", bare.nodes[0].graph):
        return bare
    bias = add.inputs[1 - index]
    if bias is None or not is_bias(bias, bare.width):
        return bare
    return Projection((*bare.nodes, add), add.outputs[0], bare.weight, bias, bare.transposed)
