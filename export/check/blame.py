"""Which node, and which line of the module, made what the check found."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from ..tracing.traces import TRACE_KEY, last_frame
from .backend import load

NODE_NAME = re.compile(r"Name:\s?'([^']*)'")
# A constant of more numbers than a tensor has axes is data, not a shape.
MAX_RANK = 8


def at(node: ir.Node | None, what: str = "made by node") -> str:
    """Say where a node comes from: its name and operator, and the line of the module, each on a line of its own."""
    if node is None:
        return ""
    frame = last_frame(node.metadata_props.get(TRACE_KEY, ""))
    return f"\n{what} {node.name!r} ({node.op_type})" + (f"\nat {frame}" if frame else "")


def named_in(message: str, model: ir.Model) -> ir.Node | None:
    """Return the node that a message of ONNX Runtime names."""
    found = NODE_NAME.search(message)
    return next((node for node in model.graph.all_nodes() if found and node.name == found[1]), None)


def baker(model: ir.Model, start: ir.Node | ir.Value | None, sizes: Collection[int]) -> ir.Node | None:
    """Return the nearest node before `start` that reads one of `sizes` as a constant; else the module's nearest."""
    nearest = None
    for node in _before(start):
        if nearest is None and last_frame(node.metadata_props.get(TRACE_KEY, "")):
            nearest = node
        if any(_is_shape_with(value, sizes) for value in node.inputs):
            return node
    return nearest


def _before(start: ir.Node | ir.Value | None) -> Iterator[ir.Node]:
    """Walk back from a node or a value, the nearest first."""
    node = start.producer() if isinstance(start, ir.Value) else start
    queue, seen = [node] if node is not None else [], {node}
    for node in queue:
        yield node
        for producer in (value.producer() for value in node.inputs if value is not None):
            if producer is not None and producer not in seen:
                seen.add(producer)
                queue.append(producer)


def _is_shape_with(value: ir.Value | None, sizes: Collection[int]) -> bool:
    constant = ir.convenience.get_const_tensor(value) if value is not None else None
    if constant is None or constant.dtype != ir.DataType.INT64 or constant.size > MAX_RANK:
        return False
    return not set(constant.numpy().flatten().tolist()).isdisjoint(sizes)


def first_nan(model: ir.Model, inputs: Mapping[str, np.ndarray]) -> ir.Node | None:
    """Run a model and return the first node that gives NaN though nothing that it reads has any."""
    values = {**inputs, **load(model, every_value=True).run(inputs)}

    def has_nan(value: ir.Value | None) -> bool:
        array = values.get(str(value.name)) if value is not None else None
        return array is not None and array.dtype.kind == "f" and bool(np.isnan(array).any())

    for node in model.graph:
        if any(map(has_nan, node.outputs)) and not any(map(has_nan, node.inputs)):
            return node
    return None


def infinite_constants(node: ir.Node) -> bool:
    """Whether a node reads an infinite constant."""
    constants = (ir.convenience.get_const_tensor(value) for value in node.inputs if value is not None)
    return any(c is not None and c.numpy().dtype.kind == "f" and bool(np.isinf(c.numpy()).any()) for c in constants)
