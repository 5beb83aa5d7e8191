"""Give the input of RMSNormalization the wider type of its scale."""

from __future__ import annotations

__all__ = ["RmsNormTypesPass"]

from collections.abc import Mapping

import onnx_ir as ir

from ..probe import mixes_rms_norm_types
from .nodes import insert_before, nodes_of
from .repair_pass import RepairPass

NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


class RmsNormTypesPass(RepairPass[None]):
    """Cast a half-precision input to float32 where the scale has it.

    Gemma and GPT-OSS normalise and scale in float32 and round once, at the end. In half precision PyTorch's exporter
    writes that as one operator with two types. With the input cast it computes what the module does. Nothing is done
    where the installed ONNX Runtime takes both.
    """

    def find(self, model: ir.Model) -> dict[ir.Node, None]:
        """Return the nodes that have such types."""
        nodes = [node for node in nodes_of(model) if _widens(node)]
        return {} if not nodes or mixes_rms_norm_types() else dict.fromkeys(nodes)

    def mend(self, found: Mapping[ir.Node, None]) -> None:
        """Cast their inputs."""
        for node in found:
            tape = ir.tape.Tape()
            wide = tape.op("Cast", [node.inputs[0]], {"to": ir.DataType.FLOAT})
            wide.dtype = ir.DataType.FLOAT
            insert_before(node, tape)
            node.replace_input_with(0, wide)


def _widens(node: ir.Node) -> bool:
    if (node.domain, node.op_type) != ("", "RMSNormalization"):
        return False
    x, scale = node.inputs[:2]
    return x is not None and scale is not None and x.dtype in NARROW and scale.dtype == ir.DataType.FLOAT
