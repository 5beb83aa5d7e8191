"""What the repairs have in common."""

from __future__ import annotations

__all__ = ["constant_before", "guard", "insert_before", "nodes_of", "reaches_softmax"]

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


def constant_before(node: ir.Node, number: float, dtype: ir.DataType) -> ir.Value:
    """Insert a constant before a node, and return it."""
    tape = ir.tape.Tape()
    value = _constant(tape, number, dtype)
    insert_before(node, tape)
    return value


def guard(node: ir.Node, asked: ir.Value, number: float) -> None:
    """Put a number in the place of a node's first result: where it is NaN, or where another value is 0.

    Parameters
    ----------
    node
        All that used its result use the guarded one; so does the graph, by the same name.
    asked
        The result itself, of which is asked whether it is NaN, or what broadcasts to it, of which whether it is 0.
    number
        What stands in the result's place.
    """
    result, graph = node.outputs[0], node.graph
    assert graph is not None
    dtype = result.dtype or ir.DataType.FLOAT
    uses = tuple(result.uses())
    tape = ir.tape.Tape()
    if asked is result:
        bad = tape.op("IsNaN", [result])
    else:
        bad = tape.op("Equal", [asked, _constant(tape, 0.0, asked.dtype or dtype)])
    bad.type, bad.shape = ir.TensorType(ir.DataType.BOOL), asked.shape
    guarded = tape.op("Where", [bad, _constant(tape, number, dtype), result])
    guarded.type, guarded.shape = ir.TensorType(dtype), result.shape
    for new in tape.nodes:
        new.metadata_props.update(node.metadata_props)
    graph.insert_after(node, tape.nodes)
    for user, index in uses:
        user.replace_input_with(index, guarded)
    for index, output in enumerate(graph.outputs):
        if output is result:
            name, result.name = result.name, f"{result.name}.unguarded"
            graph.outputs[index], guarded.name = guarded, name


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


def _constant(tape: ir.tape.Tape, number: float, dtype: ir.DataType) -> ir.Value:
    value = tape.op("Constant", [], {"value": ir.tensor(np.array(number, dtype.numpy()))})
    value.type, value.shape = ir.TensorType(dtype), ir.Shape([])
    return value
