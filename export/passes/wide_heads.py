"""Elements that are added to each head of a projection, as columns of its weights.

Shapes: E width of the input, H heads, D size of a head, C elements added to each.
"""

from __future__ import annotations

__all__ = ["WideHeadsPass"]

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from ..builder import Builder, like, take_over
from .chains import made_by, only_user
from .constants import constant_tensor, initializer, is_constant
from .projections import Projection, projection_of

# Attention whose result has the width of its values' heads.
ATTENTION = ("Attention", "PackedMultiHeadAttention")
VALUE = 2


@dataclass(frozen=True)
class _Widening:
    """A projection whose heads are split, joined with more elements, and put side by side again."""

    projection: Projection
    heads: int
    size: int
    more: ir.Value
    row: np.ndarray | None
    result: ir.Value


class WideHeadsPass(InPlacePass):
    """Give a projection's weights and bias the columns of elements that are added to its heads.

    Elements that are the same everywhere are in the bias, and others are added. Where an attention's values end in
    zeros and the end of its result is cut off, the weights that follow get rows of zeros instead. For CUDA, where
    each Concat and Slice of a layer is a launch and a copy of all heads.
    """

    def call(self, model: ir.Model) -> PassResult:
        """Fuse in place; the model is modified if any head was widened in its weights."""
        graph = model.graph
        padded: dict[tuple[ir.Value, int], ir.Value] = {}
        for node in list(graph):
            if node.op_type == "Split" and any(_is_widened(part) for part in node.outputs):
                _take_apart(graph, node)
        found = [widening for node in list(graph) if (widening := _widening(node)) is not None]
        # Values that end in zeros: how many of how much each head has.
        tails = {w.result: w for w in found if w.row is not None and not w.row.any()}
        for node in list(graph):
            value = node.inputs[VALUE] if node.op_type in ATTENTION and len(node.inputs) > VALUE else None
            if value is not None and value in tails:
                _follow(graph, node, tails[value])
        for widening in found:
            _widen(graph, widening, padded)
        if found:
            graph.sort()
        return PassResult(model, modified=bool(found))


def _is_widened(part: ir.Value) -> bool:
    """Whether heads of a part of a projection are joined with something."""
    reshapes = [node for node in part.consumers() if node.domain == "" and node.op_type == "Reshape"]
    return any(only_user(reshape.outputs[0], "Concat") is not None for reshape in reshapes)


def _take_apart(graph: ir.Graph, split: ir.Node) -> None:
    """Write a projection that is split as one for each part; those that are used alike are merged again later."""
    whole = split.inputs[0]
    projection = None if whole is None else _projection(whole)
    if projection is None or whole is None or whole.shape is None or len(whole.uses()) != 1:
        return
    if split.domain != "" or split.attributes.get_int("axis", 0) not in (-1, len(whole.shape) - 1):
        return
    widths = [part.shape[-1] if part.shape else None for part in split.outputs]
    known = [width for width in widths if isinstance(width, int)]
    if len(known) != len(widths) or sum(known) != projection.width:
        return
    first, x, start = projection.nodes[0], projection.nodes[0].inputs[0], 0
    assert x is not None
    build, weights, biases = Builder(), projection.weights(), projection.biases()
    for number, (part, width) in enumerate(zip(split.outputs, known, strict=True)):
        name, columns = f"{projection.weight.name}.{number}", slice(start, start + width)
        made = build.op("MatMul", x, initializer(graph, name, np.ascontiguousarray(weights[:, columns])))
        if projection.bias is not None:
            like(made, part)
            made = build.op("Add", made, initializer(graph, f"{name}.bias", biases[columns]))
        take_over(part, like(made, part))
        start += width
    for node in build.nodes:
        node.metadata_props.update(first.metadata_props)
    graph.insert_before(split, build.nodes)


def _widening(concat: ir.Node) -> _Widening | None:
    if concat.domain != "" or concat.op_type != "Concat" or len(concat.inputs) != 2:
        return None
    split, more = concat.inputs
    reshape, joined = made_by(split, "Reshape"), only_user(concat.outputs[0], "Reshape")
    if split is None or more is None or reshape is None or joined is None or len(split.uses()) != 1:
        return None
    if split.shape is None or more.shape is None or len(split.shape) < 3:
        return None
    if concat.attributes.get_int("axis", 0) not in (-1, len(split.shape) - 1):
        return None
    heads, size, count = split.shape[-2], split.shape[-1], more.shape[-1]
    whole, result = reshape.inputs[0], joined.outputs[0]
    if not (isinstance(heads, int) and isinstance(size, int) and isinstance(count, int)) or whole is None:
        return None
    if result.shape is None or whole.shape is None or len(whole.shape) != len(split.shape) - 1:
        return None
    if whole.shape[-1] != heads * size or result.shape[-1] != heads * (size + count):
        return None
    # Only lengths that stay may be asked for beside.
    if any(node is not reshape and node.op_type != "Shape" for node, _ in whole.uses()) or whole.is_graph_output():
        return None
    projection = _projection(whole)
    if projection is None or more.dtype != whole.dtype:
        return None
    return _Widening(projection, heads, size, more, _row(more), result)


def _projection(value: ir.Value) -> Projection | None:
    """Return the projection whose result a value is."""
    node = made_by(value, "MatMul", "Gemm", "Add")
    starts = [made_by(operand, "MatMul") for operand in node.inputs] if node and node.op_type == "Add" else [node]
    found = [projection_of(start) for start in starts if start is not None]
    return next((projection for projection in found if projection is not None and projection.result is value), None)


def _row(more: ir.Value) -> np.ndarray | None:
    """Return elements that are the same for all tokens and heads, [C]."""
    node, source = made_by(more, "Expand"), more
    if node is not None and node.inputs[0] is not None:
        source = node.inputs[0]
    if not any(is_constant(source, rank) for rank in range(5)) or source.shape is None:
        return None
    array = constant_tensor(source).numpy()
    return array.reshape(-1) if array.size == array.shape[-1] == more.shape[-1] else None  # type: ignore[index]


def _widen(graph: ir.Graph, w: _Widening, padded: dict[tuple[ir.Value, int], ir.Value]) -> None:
    projection, build = w.projection, Builder()
    old, first = projection.result, projection.nodes[0]
    x, place = first.inputs[0], w.result.producer()
    assert x is not None
    assert place is not None
    assert w.more.shape is not None
    count = w.more.shape[-1]
    assert isinstance(count, int)
    weights = projection.weights()
    name = str(projection.weight.name)
    wide = np.zeros((len(weights), w.heads, w.size + count), weights.dtype)
    wide[..., : w.size] = weights.reshape(len(weights), w.heads, w.size)
    biases = np.zeros((w.heads, w.size + count), weights.dtype)
    biases[:, : w.size] = projection.biases().reshape(w.heads, w.size)
    if w.row is not None:
        biases[:, w.size :] = w.row
    product = build.op("MatMul", x, initializer(graph, f"{name}.wide", wide.reshape(len(weights), -1)))
    made = like(product, w.result)
    if biases.any():
        made = like(build.op("Add", made, initializer(graph, f"{name}.wide.bias", biases.reshape(-1))), w.result)
    if w.row is None:
        key = w.more, w.size
        if key not in padded:
            rank = len(w.more.shape)
            before = build.ints(*([0] * (rank - 1)), w.size, *([0] * rank))
            flat = build.ints(*([0] * (rank - 2)), w.heads * (w.size + count))
            padded[key] = build.op("Reshape", build.op("Pad", w.more, before), flat)
        made = like(build.op("Add", made, padded[key]), w.result)
    for node in build.nodes:
        node.metadata_props.update(first.metadata_props)
    graph.insert_before(place, build.nodes)
    take_over(w.result, made)
    for node, index in tuple(old.uses()):
        if node.op_type == "Shape":
            # What is added may depend on the length.
            node.replace_input_with(index, product)


def _follow(graph: ir.Graph, attention: ir.Node, w: _Widening) -> None:
    """Let the projection after an attention take all of its heads, where it takes the first elements of each."""
    reshape = only_user(attention.outputs[0], "Reshape")
    cut = None if reshape is None else only_user(reshape.outputs[0], "Slice")
    joined = None if cut is None else only_user(cut.outputs[0], "Reshape")
    product = None if joined is None else only_user(joined.outputs[0], "MatMul")
    if reshape is None or cut is None or joined is None or product is None:
        return
    heads, given = reshape.outputs[0], [ir.convenience.get_const_tensor(v) for v in cut.inputs[1:] if v is not None]
    if product.inputs[0] is not joined.outputs[0] or not is_constant(product.inputs[1], 2) or heads.shape is None:
        return
    numbers = [None if tensor is None else tensor.numpy().tolist() for tensor in given]
    last = len(heads.shape) - 1
    if numbers[:2] != [[0], [w.size]] or numbers[2] not in ([-1], [last]) or numbers[3:] not in ([], [[1]]):
        return
    weight = product.inputs[1]
    assert weight is not None
    array = constant_tensor(weight).numpy()
    many, width = heads.shape[-2], heads.shape[-1]
    if not isinstance(many, int) or not isinstance(width, int) or len(array) != many * w.size:
        return
    wide = np.zeros((many, width, array.shape[1]), array.dtype)
    wide[:, : w.size] = array.reshape(many, w.size, -1)
    rows = initializer(graph, f"{weight.name}.wide", wide.reshape(many * width, -1))
    product.replace_input_with(0, attention.outputs[0])
    product.replace_input_with(1, rows)
