"""Names for nodes that have none: the profile tells nodes apart by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def name_nodes(model: onnx.ModelProto) -> bool:
    """Give each node a name of its own, in place; say whether any had none, or another's."""
    unnamed: Counter[str] = Counter()
    taken: set[str] = set()
    changed = False
    for node in _nodes(model.graph):
        name = node.name
        if not name:
            unnamed[node.op_type] += 1
            name = f"unnamed {node.op_type} {unnamed[node.op_type]}"
        base, number = name, 1
        while name in taken:
            number += 1
            name = f"{base} ({number})"
        taken.add(name)
        changed |= name != node.name
        node.name = name
    return changed


def named_nodes(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    """Return the nodes of a model and of its branches by name."""
    return {node.name: node for node in _nodes(model.graph)}


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)
