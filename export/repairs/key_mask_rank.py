"""Expand masks of ai.onnx Attention that have one row for all queries."""

from __future__ import annotations

__all__ = ["KeyMaskRankPass"]

from collections.abc import Mapping

import onnx_ir as ir

from ..probe import broadcasts_attention_masks
from .nodes import insert_before, nodes_of
from .repair_pass import RepairPass

MASK, PAST_KEY = 3, 4


class KeyMaskRankPass(RepairPass[None]):
    """Expand ``attn_mask`` [..., 1, T] to [..., S, T].

    The operator broadcasts it; ONNX Runtime refuses it when it runs. Nothing is done where the installed ONNX Runtime
    takes it.
    """

    def find(self, model: ir.Model) -> dict[ir.Node, None]:
        """Return the attention whose mask is known to have one row or less, and whose queries may be more."""
        nodes = [node for node in nodes_of(model) if _has_one_row(node)]
        return {} if not nodes or broadcasts_attention_masks() else dict.fromkeys(nodes)

    def mend(self, found: Mapping[ir.Node, None]) -> None:
        """Expand their masks."""
        for node in found:
            mask = node.inputs[MASK]
            assert mask is not None
            tape = ir.tape.Tape()
            sizes = tape.op("Concat", [_queries(tape, node), _keys(tape, node)], {"axis": 0})
            expanded = tape.op("Expand", [mask, sizes])
            if mask.dtype is not None:
                expanded.type = ir.TensorType(mask.dtype)
            insert_before(node, tape)
            node.replace_input_with(MASK, expanded)


def _has_one_row(node: ir.Node) -> bool:
    if (node.domain, node.op_type) != ("", "Attention") or len(node.inputs) <= MASK:
        return False
    mask, query = node.inputs[MASK], node.inputs[0]
    if mask is None or mask.shape is None or query is None:
        return False
    queries = None if query.shape is None else query.shape[-2]
    return queries != 1 and (len(mask.shape) < 2 or mask.shape[-2] == 1)


def _queries(tape: ir.tape.Tape, node: ir.Node) -> ir.Value:
    """Add the number of queries, int64 [1]; [B, S, H*D] and [B, H, S, D] have it in the last axis but one."""
    return tape.op("Shape", [node.inputs[0]], {"start": -2, "end": -1})


def _keys(tape: ir.tape.Tape, node: ir.Node) -> ir.Value:
    """Add the number of keys, int64 [1]: those of a cache with them."""
    keys = tape.op("Shape", [node.inputs[1]], {"start": -2, "end": -1})
    past = node.inputs[PAST_KEY] if len(node.inputs) > PAST_KEY else None
    return keys if past is None else tape.op("Add", [keys, tape.op("Shape", [past], {"start": -2, "end": -1})])
