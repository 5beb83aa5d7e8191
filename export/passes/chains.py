"""Steps along a chain of nodes, each of which alone uses what the one before it made."""

from __future__ import annotations

__all__ = ["made_by", "only_user", "other_operand"]

import onnx_ir as ir


def made_by(value: ir.Value | None, *operators: str) -> ir.Node | None:
    """Return the standard node of one of these operators that made a value."""
    node = None if value is None else value.producer()
    return node if node is not None and node.domain == "" and node.op_type in operators else None


def only_user(value: ir.Value, *operators: str) -> ir.Node | None:
    """Return the standard node of one of these operators that alone uses a value, and once."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    ((node, _),) = uses
    alike = node.domain == "" and node.op_type in operators and node.graph is value.graph
    return node if alike else None


def other_operand(node: ir.Node, value: ir.Value) -> ir.Value | None:
    """Return the other operand of a node of two."""
    first, second = node.inputs
    return second if first is value else first
