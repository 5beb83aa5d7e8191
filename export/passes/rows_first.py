"""Rows that are picked of each part of a value, as one pick before it is split."""

from __future__ import annotations

__all__ = ["RowsFirstPass"]

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from ..builder import Builder, like, take_over
from .chains import only_user


class RowsFirstPass(InPlacePass):
    """Write ``Gather(part) for part in Split(x, axis=-1)`` as ``Split(Gather(x), axis=-1)``, for one set of indices.

    x is [T, E]. For CUDA, where each Gather is a launch: query, key and value are put in rows at once.
    """

    def call(self, model: ir.Model) -> PassResult:
        """Swap in place; the model is modified if anything was."""
        swapped = [node for node in list(model.graph.all_nodes()) if _swap(node)]
        return PassResult(model, modified=bool(swapped))


def _swap(split: ir.Node) -> bool:
    if split.domain != "" or split.op_type != "Split" or split.inputs[0] is None or split.graph is None:
        return False
    x = split.inputs[0]
    if x.shape is None or len(x.shape) != 2 or split.attributes.get_int("axis", 0) not in (-1, 1):
        return False
    picks = [only_user(part, "Gather") for part in split.outputs]
    index = None if picks[0] is None else picks[0].inputs[1]
    if index is None or len(picks) < 2:
        return False
    for part, pick in zip(split.outputs, picks, strict=True):
        if pick is None or tuple(pick.inputs) != (part, index) or pick.attributes.get_int("axis", 0) != 0:
            return False
    build = Builder()
    rows = build.op("Gather", x, index, axis=0)
    attributes = [ir.AttrInt64("axis", -1), *(a for name, a in split.attributes.items() if name != "axis")]
    parts = build.add(ir.Node("", "Split", [rows, *split.inputs[1:]], attributes, num_outputs=len(picks)))
    for node in build.nodes:
        node.metadata_props.update(split.metadata_props)
    # All indices are there where the first is used.
    graph = split.graph
    order = {node: place for place, node in enumerate(graph)}
    first = min((pick for pick in picks if pick is not None), key=order.__getitem__)
    graph.insert_before(first, build.nodes)
    for pick, made in zip(picks, parts.outputs, strict=True):
        assert pick is not None
        take_over(pick.outputs[0], like(made, pick.outputs[0]))
    return True
