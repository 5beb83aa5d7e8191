"""Lengths of what ONNX Runtime's optimizer leaves behind, which no shape inference knows."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from maskport.export import inspect
from maskport.export.symbolic.interpreter import Interpreter

from .attention_text import attention

FUSED = """
<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
g (int32[B,S] ids, float[99,16] words, float[40,16] places, float[16] gamma, float[16] beta) => (float[] y)
{
  embedded, index = com.microsoft.EmbedLayerNormalization(ids, , words, places, , gamma, beta)
  normal = com.microsoft.SkipLayerNormalization(embedded, embedded, gamma, beta)
  y = com.microsoft.BiasGelu(normal, beta)
}
"""


@pytest.mark.parametrize("name", ["embedded", "normal", "y"])
def test_fused_operators_have_lengths(name: str) -> None:
    graph = ir.from_proto(onnx.parser.parse_model(FUSED)).graph
    values = {value.name: value for node in graph for value in node.outputs}
    assert [str(length) for length in Interpreter(graph).shape(values[name])] == ["B", "S", "(16)"]


def test_a_domain_that_is_not_imported_hides_no_shape() -> None:
    model = attention("c = LessOrEqual(keys, queries)", after="y = MatMul(w, v)")
    model.graph.node.append(onnx.helper.make_node("Gelu", ["y"], ["z"], domain="com.microsoft"))
    del model.graph.value_info[:]
    (site,) = inspect(model).sites
    assert (str(site.mask), site.verified) == ("causal", True)
