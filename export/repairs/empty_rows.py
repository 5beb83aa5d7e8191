"""Give rows without a key the output zero, where they are NaN."""

from __future__ import annotations

__all__ = ["EmptyRowsPass", "may_be_empty"]

from collections.abc import Mapping

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from ...models.masks import Causal, Window
from ..symbolic.sites import Site, find_sites
from .nodes import constant
from .repair_pass import RepairPass


class EmptyRowsPass(RepairPass[None]):
    """Guard the weights of attention whose rows are NaN where no key is left: ``Where(IsNaN(w), 0, w)``.

    PyTorch's own attention and ai.onnx Attention give zero there. A NaN row does not stay where it is: in the next
    layer its value is multiplied with a weight of zero, which is NaN for every row.
    """

    def find(self, model: ir.Model) -> dict[ir.Node, None]:
        """Return the Softmax, or the operator, of every attention that is read and found to give NaN."""
        inferred = ShapeInferencePass()(model.clone()).model
        nodes = dict(zip(inferred.graph.all_nodes(), model.graph.all_nodes(), strict=True))
        sites, _ = find_sites(inferred.graph)
        return dict.fromkeys(nodes[site.node] for site in sites if site.empty_rows == "nan" and may_be_empty(site))

    def mend(self, found: Mapping[ir.Node, None]) -> None:
        """Guard their results."""
        for node in found:
            _guard(node)


def may_be_empty(site: Site) -> bool:
    """Whether the mask can leave a query without a key: not where each attends the first key, or itself."""
    return not (Causal().implies(site.mask) or (not site.cross and Window(0, 0).implies(site.mask)))


def _guard(node: ir.Node) -> None:
    """Put zero in the place of a node's first result where that is NaN; an output of the graph keeps its name."""
    result, graph = node.outputs[0], node.graph
    assert graph is not None
    dtype = result.dtype or ir.DataType.FLOAT
    uses = tuple(result.uses())
    tape = ir.tape.Tape()
    bad = tape.op("IsNaN", [result])
    guarded = tape.op("Where", [bad, constant(tape, 0.0, dtype), result])
    for value, kind in ((bad, ir.DataType.BOOL), (guarded, dtype)):
        value.type, value.shape = ir.TensorType(kind), result.shape
    for new in tape.nodes:
        new.metadata_props.update(node.metadata_props)
    graph.insert_after(node, tape.nodes)
    for user, index in uses:
        user.replace_input_with(index, guarded)
    for index, output in enumerate(graph.outputs):
        if output is result:
            name, result.name = result.name, f"{result.name}.unguarded"
            graph.outputs[index], guarded.name = guarded, name
