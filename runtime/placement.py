"""Which node runs on which execution provider."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import onnxruntime as ort

# ONNX Runtime keeps the list only if the session was made with this.
RECORD_KEY = "session.record_ep_graph_assignment_info"


class PlacedNode(NamedTuple):
    """A node and where it runs.

    Attributes
    ----------
    name : str
        The node's name in the file; one without a name is called ``unnamed Add 1`` and so on, by operator.
    op_type, domain : str
        Its operator; the domain of ONNX itself is empty.
    provider : str
        ONNX Runtime's name of the execution provider.
    """

    name: str
    op_type: str
    domain: str
    provider: str


def placed_nodes(session: ort.InferenceSession) -> list[PlacedNode]:
    """Return the nodes of a session that records them, in the order in which they were assigned."""
    unnamed: Counter[str] = Counter()
    nodes = []
    for subgraph in session.get_provider_graph_assignment_info():
        for node in subgraph.get_nodes():
            name = node.name
            if not name:
                unnamed[node.op_type] += 1
                name = f"unnamed {node.op_type} {unnamed[node.op_type]}"
            nodes.append(PlacedNode(name, node.op_type, node.domain, subgraph.ep_name))
    return nodes
