"""Give masks that are multiplied with an infinite fill a finite one."""

from __future__ import annotations

__all__ = ["HalfFillPass"]

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ..lowering.numbers import fill
from .nodes import constant, insert_before, nodes_of, reaches_softmax
from .repair_pass import RepairPass

FLOATS = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT)


class HalfFillPass(RepairPass[int]):
    """Bound the fill of ``scores + mask * fill``, where it is infinite.

    -1e9, exported in float16, is -inf: where the mask is 0 its product is NaN, and so is every weight. A finite fill
    gives what was meant: weights of exactly zero, wherever a row has a key.
    """

    def find(self, model: ir.Model) -> dict[ir.Node, int]:
        """Return the products of a mask and an infinity, and which of the two operands that is."""
        found = {}
        for node in nodes_of(model):
            if (node.domain, node.op_type) == ("", "Mul") and reaches_softmax(node.outputs[0]):
                infinite = [index for index, value in enumerate(node.inputs) if _is_infinite(value)]
                if len(infinite) == 1:
                    found[node] = infinite[0]
        return found

    def mend(self, found: Mapping[ir.Node, int]) -> None:
        """Replace the infinities by fills."""
        for node, index in found.items():
            value = node.inputs[index]
            assert value is not None
            tensor = ir.convenience.get_const_tensor(value)
            assert tensor is not None
            number = fill(tensor.dtype.name.lower()) * -float(np.sign(tensor.numpy().astype(np.float32)).item())
            tape = ir.tape.Tape()
            node.replace_input_with(index, constant(tape, number, tensor.dtype))
            insert_before(node, tape)


def _is_infinite(value: ir.Value | None) -> bool:
    tensor = None if value is None or value.is_graph_input() else ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.size != 1 or tensor.dtype not in FLOATS:
        return False
    return bool(np.isinf(tensor.numpy().astype(np.float32)).all())
