"""Ids that a graph looks for: where they stand is part of a model's mask or positions, not of its text."""

from __future__ import annotations

import onnx_ir as ir

from ...export.proof.ids import KEEPS
from ...export.symbolic.values import constant_of

COMPARES = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")


def compared_ids(value: ir.Value) -> frozenset[int]:
    """Return the numbers that an input's elements are compared with."""
    found: set[int] = set()
    seen, waiting = {value}, [value]
    while waiting:
        current = waiting.pop()
        for node, place in current.uses():
            if node.domain == "" and node.op_type in COMPARES:
                other = node.inputs[1 - place]
                constant = constant_of(other) if other is not None else None
                if constant is not None and constant.dtype.is_integer():
                    found |= {int(number) for number in constant.numpy().flatten()}
            elif node.domain == "" and node.op_type in KEEPS and place == 0 and node.outputs[0] not in seen:
                seen.add(node.outputs[0])
                waiting.append(node.outputs[0])
    return frozenset(found)
