"""Lift the mask of a graph that computes nothing else."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from maskport.export.symbolic import terms as t
from maskport.export.symbolic.algebra import Axes, to_mask
from maskport.export.symbolic.interpreter import Interpreter
from maskport.models import Mask


def lift_graph(model: onnx.ModelProto) -> tuple[Mask, set[tuple[str, str]]]:
    """Lift the output of a model made by `Mask.to_onnx`; return the mask and what it assumes."""
    graph = ir.from_proto(model).graph
    q_len, k_len = t.symbol("q_len", t.ONE), t.symbol("k_len", t.ONE)
    past = t.symbol("past", t.ZERO, t.sub(k_len, q_len))
    x = Interpreter(graph, {"q_len": q_len, "k_len": k_len, "past": past})
    lengths = (("b", x.dimension("batch")), ("h", x.dimension("heads")), ("q", q_len), ("k", k_len))
    b, h, q, k = (t.symbol(name, t.ZERO, t.sub(n, t.ONE)) for name, n in lengths)
    axes = Axes(b, h, q, k, q_len, k_len, past, x.shape_of)
    (output,) = graph.outputs
    index = tuple(t.ZERO if t.fixed(n) == 1 else i for n, i in zip(x.shape(output), (b, h, q, k), strict=True))
    return to_mask(x.term(output, index), axes), axes.assumes
