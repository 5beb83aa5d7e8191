"""Products with a bias as a product and a sum, without reshaping around them."""

from __future__ import annotations

__all__ = ["PlainProductsPass"]

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from ..builder import Builder, like, take_over
from .chains import made_by, only_user
from .constants import initializer
from .projections import projection_of


class PlainProductsPass(InPlacePass):
    """Write ``Gemm(x, weight, bias)`` as MatMul and Add, and on [B, S, E] where it is reshaped before and after.

    For CUDA, where a bias is a launch of its own either way: as an Add, it can be fused with what follows.
    """

    def call(self, model: ir.Model) -> PassResult:
        """Rewrite in place; the model is modified if any product was."""
        found = [node for node in list(model.graph) if node.op_type == "Gemm"]
        rewritten = [node for node in found if _rewrite(model.graph, node)]
        return PassResult(model, modified=bool(rewritten))


def _rewrite(graph: ir.Graph, node: ir.Node) -> bool:
    projection = projection_of(node)
    if projection is None:
        return False
    x, old = node.inputs[0], projection.result
    flat, whole = made_by(x, "Reshape"), only_user(old, "Reshape")
    if flat is not None and whole is not None and _inverse(flat, whole, projection.width):
        x, old = flat.inputs[0], whole.outputs[0]
    elif projection.bias is None:
        return False
    assert x is not None
    build, weight = Builder(), projection.weight
    if projection.transposed:
        weight = initializer(graph, f"{weight.name}.transposed", np.ascontiguousarray(projection.weights()))
    made = like(build.op("MatMul", x, weight), old)
    if projection.bias is not None:
        made = like(build.op("Add", made, projection.bias), old)
    for new in build.nodes:
        new.metadata_props.update(node.metadata_props)
    graph.insert_before(node, build.nodes)
    take_over(old, made)
    return True


def _inverse(flat: ir.Node, whole: ir.Node, width: int) -> bool:
    """Whether [..., E] became [N, E], and [N, width] becomes [..., width] of the same lengths again."""
    source, rows, result = flat.inputs[0], flat.outputs[0], whole.outputs[0]
    if source is None or source.shape is None or rows.shape is None or result.shape is None:
        return False
    if len(rows.shape) != 2 or source.shape[-1] != rows.shape[-1] or not isinstance(rows.shape[-1], int):
        return False
    lengths = list(source.shape[:-1])
    known = all(isinstance(n, int) or n.value is not None for n in lengths)
    return known and list(result.shape) == [*lengths, width]
