"""Sums that are normalized, with their biases, as one operator."""

from __future__ import annotations

__all__ = ["SkipNormPass"]

from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from ..builder import MICROSOFT, like, take_over
from .chains import made_by
from .constants import is_bias

# Norms, what they are after a sum, and how many weights they must have: LayerNormalization's may lack its own bias.
NORMS = {
    "LayerNormalization": ("SkipLayerNormalization", (2, 3)),
    "RMSNormalization": ("SkipSimplifiedLayerNormalization", (2,)),
}
RANKS = (2, 3)
# The place of the sum among the operator's outputs, and their number.
SUM, OUTPUTS = 3, 4


@dataclass(frozen=True)
class _Sum:
    """What is added: two values of one shape, and a constant bias."""

    total: ir.Value
    terms: tuple[ir.Value, ir.Value]
    bias: ir.Value | None


class SkipNormPass(InPlacePass):
    """Write ``norm(x + skip + bias)`` as SkipLayerNormalization or SkipSimplifiedLayerNormalization.

    x and skip are [B, S, E] or [T, E], of one shape by the names of its dimensions. The sum is a second output where
    something else uses it. For CUDA, where a layer has two norms and each sum and each bias is a launch.
    """

    def call(self, model: ir.Model) -> PassResult:
        """Fuse in place; the model is modified if any norm was."""
        fused = [node for node in list(model.graph.all_nodes()) if _fuse(node)]
        if fused:
            model.graph.sort()
            model.opset_imports.setdefault(MICROSOFT, 1)
        return PassResult(model, modified=bool(fused))


def _fuse(node: ir.Node) -> bool:
    if node.domain != "" or node.op_type not in NORMS or any(_is_used(v) for v in node.outputs[1:]):
        return False
    operator, numbers = NORMS[node.op_type]
    x, *weights = node.inputs
    if x is None or x.shape is None or len(x.shape) not in RANKS or len(node.inputs) not in numbers:
        return False
    axis, width = node.attributes.get_int("axis", -1), x.shape[-1]
    if axis not in (-1, len(x.shape) - 1) or node.attributes.get_int("stash_type", 1) != ir.DataType.FLOAT:
        return False
    if not isinstance(width, int) or any(weight is not None and not _has_width(weight, width) for weight in weights):
        return False
    found = _sum(x, width)
    if (
        found is None
        or found.total.graph is not node.graph
        or any(w is not None and w.dtype != x.dtype for w in weights)
    ):
        return False
    has_beta = operator == "SkipLayerNormalization"
    beta = [weights[1] if len(weights) > 1 else None] if has_beta else []
    inputs = [*found.terms, weights[0], *beta, found.bias]
    while inputs[-1] is None:
        inputs.pop()
    used = OUTPUTS if len(x.uses()) > 1 or x.is_graph_output() else 1
    epsilon = ir.AttrFloat32("epsilon", node.attributes.get_float("epsilon", 1e-5))
    norm = ir.Node(MICROSOFT, operator, inputs, [epsilon], num_outputs=used)
    norm.metadata_props.update(node.metadata_props)
    assert node.graph is not None
    node.graph.insert_before(node, norm)
    take_over(node.outputs[0], like(norm.outputs[0], node.outputs[0]))
    if used == OUTPUTS:
        # The mean and the inverse deviation, which are float32 and which the kernel doesn't write.
        for value in norm.outputs[1:SUM]:
            value.type = ir.TensorType(ir.DataType.FLOAT)
        take_over(x, like(norm.outputs[SUM], x))
    return True


def _is_used(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _has_width(value: ir.Value, width: int) -> bool:
    return value.shape is not None and list(value.shape) == [width]


def _sum(total: ir.Value, width: int) -> _Sum | None:
    """Read a sum of two values of one shape, to one of which a bias may have been added, or to the sum."""
    add = made_by(total, "Add")
    if add is None:
        return None
    left, right = add.inputs
    if left is None or right is None:
        return None
    for value, bias in ((left, right), (right, left)):
        inner = made_by(value, "Add")
        if is_bias(bias, width) and inner is not None and not value.is_graph_output() and len(value.uses()) == 1:
            first, second = inner.inputs
            if first is not None and second is not None and _alike(first, second):
                return _Sum(total, (first, second), bias)
    if not _alike(left, right):
        return None
    for value, skip in ((left, right), (right, left)):
        inner = made_by(value, "Add")
        if inner is not None and not value.is_graph_output() and len(value.uses()) == 1:
            for term, added in (inner.inputs, inner.inputs[::-1]):
                if term is not None and is_bias(added, width):
                    return _Sum(total, (term, skip), added)
    return _Sum(total, (left, right), None)


def _alike(left: ir.Value, right: ir.Value) -> bool:
    """Whether two values are known to have one type and one shape."""
    if left.shape is None or right.shape is None or left.dtype != right.dtype or len(left.shape) != len(right.shape):
        return False
    return all(
        one == other and (isinstance(one, int) or one.value is not None)
        for one, other in zip(left.shape, right.shape, strict=True)
    )
