"""Gelu by its formula as the operator, and a bias before it as a part of it."""

from __future__ import annotations

__all__ = ["BiasGeluPass"]

import math
from typing import Any

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult
from onnxscript.rewriter import pattern

from ..builder import MICROSOFT, like, take_over
from .chains import made_by
from .constants import is_bias

# The operator with a bias, by how Gelu is computed.
WITH_BIAS = {"none": "BiasGelu", "tanh": "FastGelu"}
# The first operator set with Gelu.
OPSET = 20


# Of a constant that was rounded to half precision; bfloat16's, which are coarser, are left.
ROUNDED = 1e-3


def _by_tanh(op: Any, x: Any) -> Any:
    factor, share = (pattern.Constant(number, rel_tol=ROUNDED) for number in (math.sqrt(2 / math.pi), 0.044715))
    inner = op.Mul(factor, op.Add(x, op.Mul(share, op.Pow(x, 3.0))))
    return op.Mul(op.Mul(0.5, x), op.Add(1.0, op.Tanh(inner)))


def _gelu(op: Any, x: Any) -> Any:
    return op.Gelu(x, approximate="tanh")


# Each step of half precision that ONNX Runtime would fuse is kept in float32 where it is a power: so before that.
_RULES = pattern.RewriteRuleSet([pattern.RewriteRule(_by_tanh, _gelu)], commute=True)


class BiasGeluPass(InPlacePass):
    """Write ``Gelu(x + bias)``, for a constant bias of the last axis, as BiasGelu or, of the approximation, FastGelu.

    Gelu that is written out by its approximation with tanh becomes the operator.
    """

    def call(self, model: ir.Model) -> PassResult:
        """Fuse in place; the model is modified if anything was."""
        named = _RULES.apply_to_model(model) if model.opset_imports.get("", 0) >= OPSET else 0
        fused = [node for node in list(model.graph.all_nodes()) if _fuse(node)]
        if fused:
            model.opset_imports.setdefault(MICROSOFT, 1)
        return PassResult(model, modified=bool(named or fused))


def _fuse(node: ir.Node) -> bool:
    if node.op_type != "Gelu" or node.domain not in ("", MICROSOFT):
        return False
    operator = WITH_BIAS.get(node.attributes.get_string("approximate", "none") or "none")
    total = node.inputs[0]
    add = made_by(total, "Add")
    if operator is None or add is None or total is None or len(total.uses()) != 1 or total.is_graph_output():
        return False
    for x, bias in (add.inputs, add.inputs[::-1]):
        if x is None or not x.shape or not isinstance(x.shape[-1], int):
            continue
        if is_bias(bias, x.shape[-1]) and add.graph is node.graph:
            made = ir.Node(MICROSOFT, operator, [x, bias], num_outputs=1)
            made.metadata_props.update(node.metadata_props)
            assert node.graph is not None
            node.graph.insert_before(node, made)
            take_over(node.outputs[0], like(made.outputs[0], node.outputs[0]))
            return True
    return False
