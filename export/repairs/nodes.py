"""What the repairs have in common."""

from __future__ import annotations

__all__ = ["insert_before", "nodes_of"]

from collections.abc import Iterator

import onnx_ir as ir


def nodes_of(model: ir.Model) -> Iterator[ir.Node]:
    """Yield the nodes of the graph, of what is nested in it and of the functions, in their order."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield from graph.all_nodes()


def insert_before(node: ir.Node, tape: ir.tape.Tape) -> None:
    """Insert the nodes of a tape before a node of a graph; they are told to come from the same line of the module."""
    assert node.graph is not None
    for new in tape.nodes:
        new.metadata_props.update(node.metadata_props)
    node.graph.insert_before(node, tape.nodes)
