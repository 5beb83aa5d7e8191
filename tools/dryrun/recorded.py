"""Values within branches and loops: the part of a model around them is run in Python, and what is read is recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx

DOMAIN = "maskport.dryrun"
KEY = "\n"  # What joins the names of a path; no name has it.
CONDITION = 0  # The place of a loop's condition among the outputs of its body.


def record(
    part: onnx.ModelProto, feeds: Mapping[str, np.ndarray], read: Mapping[str, int]
) -> dict[tuple[str, ...], list[np.ndarray]]:
    """Run a part of a model and return what its nodes were given, in order, by the names around a node and its own.

    Parameters
    ----------
    part
        The part, with its data. Its nodes are changed.
    feeds
        Arrays by input.
    read
        By operator, the place of the input to record. A loop's condition is recorded under the loop.
    """
    import onnx
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    from ...export.twins import TWINS
    from ...export.twins.in_float32 import IN_FLOAT32

    found: dict[tuple[str, ...], list[np.ndarray]] = {}

    class Record(OpRun):
        op_domain = DOMAIN

        def _run(self, value: np.ndarray, path: str = "") -> tuple[np.ndarray]:
            found.setdefault(tuple(path.split(KEY)), []).append(np.array(value))
            return (value,)

    class Evaluator(ReferenceEvaluator):
        def __init__(self, proto: Any, **kwargs: Any) -> None:
            super().__init__(proto, **{**kwargs, "new_ops": [*TWINS, *IN_FLOAT32, Record]})

    known = {entry.domain for entry in part.opset_import}
    part.opset_import.extend(onnx.helper.make_opsetid(name, 1) for name in {DOMAIN, "com.microsoft"} - known)
    _insert(part.graph, (), read)
    # Whatever Python says of a part of a model, the report names what was not known.
    with contextlib.suppress(Exception):
        Evaluator(part).run(None, dict(feeds))
    return found


def _insert(graph: onnx.GraphProto, around: tuple[str, ...], read: Mapping[str, int]) -> None:
    nodes = []
    for node in graph.node:
        path = (*around, node.name)
        place = read.get(node.op_type)
        if place is not None and place < len(node.input):
            nodes.append(_recorder(node.input[place], f"{node.input[place]} for {node.name}", path))
            node.input[place] = nodes[-1].output[0]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _insert(attribute.g, path, read)
                if node.op_type == "Loop":
                    output = attribute.g.output[CONDITION]
                    attribute.g.node.append(_recorder(output.name, f"{output.name} of {node.name}", path))
                    output.name = attribute.g.node[-1].output[0]
        if node.op_type in ("MemcpyToHost", "MemcpyFromHost"):
            node.op_type, node.domain = "Identity", ""
        nodes.append(node)
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _recorder(given: str, made: str, path: tuple[str, ...]) -> onnx.NodeProto:
    import onnx

    return onnx.helper.make_node("Record", [given], [made], domain=DOMAIN, path=KEY.join(path))
