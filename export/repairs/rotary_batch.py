"""Give the cos and sin of RotaryEmbedding the batch of its input."""

from __future__ import annotations

__all__ = ["RotaryBatchPass"]

from collections.abc import Mapping

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from ..probe import shares_rotary_caches
from .nodes import insert_before, nodes_of
from .repair_pass import RepairPass

CACHES = (1, 2)


class RotaryBatchPass(RepairPass[int | str | None]):
    """Expand the caches of every RotaryEmbedding that keep batch 1 to the batch of its input.

    PyTorch computes cos and sin once for all rows, ``[1, S, D / 2]``, and its exporter passes them on as they are. The
    operator wants ``[B, S, D / 2]``. Nothing is done where the installed ONNX Runtime takes both.
    """

    def find(self, model: ir.Model) -> dict[ir.Node, int | str | None]:
        """Return the nodes that have such caches, and the size or name of their batch."""
        nodes = [node for node in nodes_of(model) if _takes_caches_by_row(node)]
        if not nodes or shares_rotary_caches():
            return {}
        # PyTorch's exporter leaves the shapes of the caches out.
        twins = dict(zip(nodes_of(model), nodes_of(ShapeInferencePass()(model.clone()).model), strict=True))
        batches = {node: [_batch(value) for value in twins[node].inputs[:3]] for node in nodes}
        return {node: found[0] for node, found in batches.items() if found[0] != 1 and found[1:] == [1, 1]}

    def mend(self, found: Mapping[ir.Node, int | str | None]) -> None:
        """Expand their caches."""
        shapes: dict[tuple[object, object], ir.Value] = {}
        for node, batch in found.items():
            # What has no name may be any size.
            key = (node.graph, batch or node)
            if key not in shapes:
                shapes[key] = _batch_shape(node)
            for index in CACHES:
                _expand(node, index, shapes[key])


def _takes_caches_by_row(node: ir.Node) -> bool:
    """Whether cos and sin are given for each row and token, not looked up by position_ids."""
    return (node.domain, node.op_type) == ("", "RotaryEmbedding") and not any(node.inputs[3:])


def _batch(value: ir.Value | None) -> int | str | None:
    """Return the size or the name of the first axis, None if it has neither."""
    if value is None or not value.shape:
        return None
    dim = value.shape[0]
    return dim.value if isinstance(dim, ir.SymbolicDim) else dim


def _batch_shape(node: ir.Node) -> ir.Value:
    """Insert the shape [B, 1, 1] before the node, and return it."""
    tape = ir.tape.Tape()
    batch = tape.op("Shape", [node.inputs[0]], {"start": 0, "end": 1})
    ones = tape.op("Constant", [], {"value_ints": [1, 1]})
    shape = tape.op("Concat", [batch, ones], {"axis": 0})
    insert_before(node, tape)
    return shape


def _expand(node: ir.Node, index: int, shape: ir.Value) -> None:
    """Insert the expansion of a cache before the node, and let the node take it."""
    tape, cache = ir.tape.Tape(), node.inputs[index]
    expanded = tape.op("Expand", [cache, shape])
    if cache is not None and cache.dtype is not None:
        expanded.dtype = cache.dtype
    insert_before(node, tape)
    node.replace_input_with(index, expanded)
