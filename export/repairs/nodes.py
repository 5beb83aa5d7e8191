"""What the repairs have in common."""

from __future__ import annotations

__all__ = ["constant", "insert_before", "nodes_of", "reaches_softmax"]

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

# What may stand between a mask and the Softmax that it masks.
ON_THE_WAY = ("Add", "Cast", "Concat", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze", "Where")
ATTENTION = ("Attention", "GroupQueryAttention", "MultiHeadAttention", "Softmax")


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


def reaches_softmax(value: ir.Value) -> bool:
    """Whether a value is added to scores, moved about at most before."""
    seen: set[ir.Node] = set()
    waiting = [value]
    while waiting:
        for node in waiting.pop().consumers():
            if node.op_type in ATTENTION:
                return True
            if node not in seen and node.op_type in ON_THE_WAY:
                seen.add(node)
                waiting += node.outputs
    return False


def constant(tape: ir.tape.Tape, number: float, dtype: ir.DataType) -> ir.Value:
    """Add a number to a tape."""
    value = tape.op("Constant", [], {"value": ir.tensor(np.array(number, dtype.numpy()))})
    value.type, value.shape = ir.TensorType(dtype), ir.Shape([])
    return value
