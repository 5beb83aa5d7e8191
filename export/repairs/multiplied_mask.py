"""Take keys out of the Softmax whose scores are multiplied with a mask of 0."""

from __future__ import annotations

__all__ = ["MultipliedMaskPass"]

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ..lowering.numbers import fill
from .nodes import constant, insert_before, nodes_of
from .repair_pass import RepairPass

# What may stand between the scores and the Softmax, and leads on to the scores.
BACK = ("Add", "Cast", "Div", "Identity", "Mul", "Reshape", "Sub")
COMPARES = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "And", "Or", "Trilu")
# What masks are made with; a number that says how much to attend is made with others.
MASKS = {
    *COMPARES,
    *("Cast", "Concat", "Expand", "Gather", "Identity", "Mul", "Range", "Reshape", "Slice", "Squeeze", "Sub"),
    *("Transpose", "Unsqueeze", "Where", "Constant", "ConstantOfShape", "Shape"),
}


class MultipliedMaskPass(RepairPass[tuple[ir.Value, ir.Node]]):
    """Set scores to a fill where the mask is 0 that they are multiplied with, and leave them as they are elsewhere.

    ``softmax(scores * mask)`` hides no key: a score of 0 has the weight of exp(0), more than any that is negative. It
    runs without an error, and this repair changes what the model computes: a model that was trained with the fault may
    be right only with it. A mask that is neither 0 nor 1 scales no more. Nothing is done where a mask is added as well.
    """

    def find(self, model: ir.Model) -> dict[ir.Node, tuple[ir.Value, ir.Node]]:
        """Return the products of scores and a mask of 0 and 1, the mask, and the Softmax that the product goes into."""
        found: dict[ir.Node, tuple[ir.Value, ir.Node]] = {}
        for node in nodes_of(model):
            if (node.domain, node.op_type) == ("", "Softmax") and _is_over_the_last(node):
                found |= {product: (mask, node) for product, mask in _products(node).items()}
        return found

    def mend(self, found: Mapping[ir.Node, tuple[ir.Value, ir.Node]]) -> None:
        """Drop the products, and fill the scores right before the Softmax."""
        for product, (mask, softmax) in found.items():
            masked, result, graph = softmax.inputs[0], product.outputs[0], product.graph
            assert masked is not None
            assert graph is not None
            dtype = masked.dtype or ir.DataType.FLOAT
            (scores,) = (value for value in product.inputs if value is not mask)
            tape = ir.tape.Tape()
            hidden = tape.op("Equal", [mask, constant(tape, 0.0, mask.dtype or dtype)])
            filled = tape.op("Where", [hidden, constant(tape, fill(dtype.name.lower()), dtype), masked])
            hidden.type, hidden.shape = ir.TensorType(ir.DataType.BOOL), mask.shape
            filled.type, filled.shape = ir.TensorType(dtype), masked.shape
            insert_before(softmax, tape)
            softmax.replace_input_with(0, filled)
            assert scores is not None
            result.replace_all_uses_with(scores)
            graph.remove(product, safe=True)


def _is_over_the_last(softmax: ir.Node) -> bool:
    axis = softmax.attributes.get_int("axis", -1)
    shape = softmax.outputs[0].shape
    return axis == -1 or (shape is not None and axis == len(shape) - 1)


def _products(softmax: ir.Node) -> dict[ir.Node, ir.Value]:
    """Return the products with a mask behind a Softmax; none if the scores are masked in another way, too."""
    found: dict[ir.Node, ir.Value] = {}
    waiting = [softmax.inputs[0]]
    while waiting:
        value = waiting.pop()
        node = None if value is None else value.producer()
        # What something else uses as well stays as it is.
        if value is None or node is None or node.domain != "" or len(value.uses()) > 1 or value.is_graph_output():
            continue
        if node.op_type == "Where":
            return {}
        if node.op_type not in BACK:
            continue
        masks = [operand for operand in node.inputs if operand is not None and _is_mask(operand)]
        if masks and node.op_type != "Mul":
            return {}
        if masks and len(masks) == 1:
            found[node] = masks[0]
        waiting += [operand for operand in node.inputs if operand not in masks]
    return found


def _is_mask(value: ir.Value) -> bool:
    """Whether a value is made of truth values, or of integers that the caller gives, as masks are."""
    is_mask = False
    seen: set[ir.Value] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        tensor = ir.convenience.get_const_tensor(current)
        node = current.producer()
        if tensor is not None:
            is_mask = is_mask or (tensor.size > 1 and bool(np.isin(tensor.numpy(), (0, 1)).all()))
        elif node is None:
            if current.dtype is None or current.dtype.is_floating_point():
                return False
            is_mask = True
        elif node.domain != "" or node.op_type not in MASKS:
            return False
        else:
            is_mask = is_mask or node.op_type in COMPARES
            waiting += [] if node.op_type == "Shape" else [operand for operand in node.inputs if operand is not None]
    return is_mask
