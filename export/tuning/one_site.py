"""An attention as a model of its own: its canonical node, and inputs for everything that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from ..lowering.asked import Asked, dim
from ..lowering.canonical import FIXED_INPUTS, is_site
from ..lowering.facts import key_paddings
from .workload import Workload

__all__ = ["alone", "feeds_of"]

# What is made of a mask is made once for all layers.
LAYERS = 3

# Axes of the inputs: batch, heads of queries (h) and keys (g), queries, all keys (k), keys of a cache (p), those that
# are new (n); None is what the graph says.
AXES: dict[str, tuple[str | None, ...]] = {
    "query": ("b", "q", None),
    "key": ("b", "n", None),
    "value": ("b", "n", None),
    "bias": ("b", "h", "q", "k"),
    "sink": ("h",),
    "past_key": ("b", "g", "p", None),
    "past_value": ("b", "g", "p", None),
}


def alone(node: ir.Node, model: ir.Model) -> ir.Model:
    """Return a model of one canonical node of a model, a few times: each value that it reads is an input."""
    given: dict[ir.Value, ir.Value] = {}
    read: dict[ir.Value, ir.Value] = {}
    nodes = []
    for value in node.inputs:
        if value is None or value in read:
            continue
        given[value] = ir.Value(name=str(value.name), type=value.type, shape=value.shape)
        read[value] = given[value]
        if not value.is_graph_input():
            # What is granted of a model's inputs is not granted of this: it is computed, of lengths that no input has.
            known = [size if isinstance(size, int) else None for size in value.shape or ()]
            given[value].shape = None if value.shape is None else ir.Shape(known)
            same = ir.node("Identity", [given[value]])
            read[value] = same.outputs[0]
            read[value].name, read[value].type, read[value].shape = f"{value.name} computed", value.type, value.shape
            nodes.append(same)
    inputs = [None if value is None else read[value] for value in node.inputs]
    for layer in range(LAYERS):
        copy = ir.Node(node.domain, node.op_type, inputs, node.attributes.values(), num_outputs=len(node.outputs))
        for place, (old, new) in enumerate(zip(node.outputs, copy.outputs, strict=True)):
            new.name, new.type, new.shape = f"output {layer} {place}", old.type, old.shape
        nodes.append(copy)
    outputs = [value for copy in nodes if is_site(copy) for value in copy.outputs]
    imports = dict(model.opset_imports)
    graph = ir.Graph(list(given.values()), outputs, nodes=nodes, opset_imports=imports, name="site")
    return ir.Model(graph, ir_version=model.ir_version, metadata_props=dict(model.metadata_props))


def feeds_of(model: ir.Model, workload: Workload, batch: int, length: int) -> dict[str, np.ndarray]:
    """Return inputs for the model of one node: drawn numbers, and masks of the workload's padding.

    A cache makes it one step of a decoder: one query, and all keys but one in the cache.
    """
    node = model.graph[-1]
    asked = Asked.of(node, None, 0)
    lengths, cached = asked.lengths, asked.inputs.past_key is not None
    new = dim(asked.inputs.key, 1)
    sizes = {"h": asked.site.q_heads, "g": asked.site.kv_heads}
    sizes["b"] = lengths.batch if isinstance(lengths.batch, int) else batch
    sizes["q"] = lengths.queries if isinstance(lengths.queries, int) else 1 if cached else length
    sizes["n"] = new if isinstance(new, int) else 1 if cached else length
    sizes["p"] = lengths.past if isinstance(lengths.past, int) else max(length - sizes["n"], 0)
    sizes["k"] = sizes["p"] + sizes["n"]
    keep = workload.keep(sizes["b"], sizes["k"])
    rng = np.random.default_rng(0)
    feeds: dict[str, np.ndarray] = {}
    for value, axes in _inputs(node, asked):
        known = value.shape if value.shape is not None else (None,) * len(axes)
        shape = [size if isinstance(size, int) else sizes[str(axis)] for size, axis in zip(known, axes, strict=True)]
        assert value.dtype is not None
        feeds[_input(value)] = rng.standard_normal(shape).astype(value.dtype.numpy())
    pads = dict(key_paddings(asked.mask))
    for name, spec in asked.mask.tensors.items():
        value = asked.inputs.tensors[name]
        assert value.dtype is not None
        like = feeds[_input(value)]
        if name in pads:
            array: np.ndarray = np.where(keep, int(pads[name] == 0), pads[name])
        elif spec.dims == "b":
            array = keep.sum(1)
        elif spec.dims == "bhqk":
            array = np.ones(like.shape)
        else:
            array = np.zeros(like.shape)
        feeds[_input(value)] = np.broadcast_to(array, like.shape).astype(value.dtype.numpy())
    return feeds


def _input(value: ir.Value) -> str:
    """Return the name of the input that a value is, or is the same as."""
    node = value.producer()
    source = value if node is None else node.inputs[0]
    assert source is not None
    return str(source.name)


def _inputs(node: ir.Node, asked: Asked) -> Iterator[tuple[ir.Value, tuple[str | None, ...]]]:
    """Yield the inputs of a node and their axes."""
    axes: Mapping[str, tuple[str | None, ...]] = AXES | {
        f"tensor {name}": tuple(spec.dims) for name, spec in asked.mask.tensors.items()
    }
    names = [*FIXED_INPUTS, *(f"tensor {name}" for name in asked.site.tensors)]
    for name, value in zip(names, node.inputs, strict=False):
        if value is not None:
            yield value, axes[name]
