"""Give every value of a graph and of the graphs inside it a name of its own."""

from __future__ import annotations

__all__ = ["UniqueNamesPass"]

from collections import Counter
from collections.abc import Iterator

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult
from onnx_ir.passes.common import NameFixPass


class UniqueNamesPass(InPlacePass):
    """Rename values in bodies of If, Loop and Scan whose names the graph around them has, too.

    ONNX wants one assignment for a name in all of a model. onnx-ir's NameFixPass, which runs first, doesn't look at
    what the outer graph computes after the node with the body.
    """

    def call(self, model: ir.Model) -> PassResult:
        """Rename in place; the model is modified if a name was given or changed."""
        modified = bool(NameFixPass()(model).modified)
        taken = {value.name for value in _values(model.graph)}
        counts: Counter[str] = Counter()
        for graph in model.graphs():
            if graph is model.graph:
                continue
            for value in _values(graph):
                name = str(value.name)
                if name in taken:
                    modified = True
                    while (renamed := f"{name}.{counts[name]}") in taken:
                        counts[name] += 1
                    value.name = name = renamed
                taken.add(name)
        return PassResult(model, modified=modified)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield what a graph itself defines."""
    yield from graph.inputs
    yield from tuple(graph.initializers.values())
    for node in graph:
        yield from node.outputs
