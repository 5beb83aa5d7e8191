"""Give the cos and sin of RotaryEmbedding the batch of its input."""

from __future__ import annotations

__all__ = ["RotaryBatchPass"]

from collections.abc import Iterator

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from ..probe import shares_rotary_caches

CACHES = (1, 2)


class RotaryBatchPass(InPlacePass):
    """Expand the caches of every RotaryEmbedding that keep batch 1 to the batch of its input.

    PyTorch computes cos and sin once for all rows, ``[1, S, D / 2]``, and its exporter passes them on as they are. The
    operator wants ``[B, S, D / 2]``. Nothing is done where the installed ONNX Runtime takes both.
    """

    def call(self, model: ir.Model) -> PassResult:
        """Repair the model; it is modified if a node had such caches."""
        nodes = [node for node in _nodes(model) if _keeps_batch_one(node)]
        if not nodes or shares_rotary_caches():
            return PassResult(model, modified=False)
        expanded: dict[tuple[object, ...], ir.Value] = {}
        for node in nodes:
            x = node.inputs[0]
            assert x is not None
            for index in CACHES:
                cache = node.inputs[index]
                key = (node.graph, cache, _batch(x))
                if key not in expanded:
                    expanded[key] = _expand(node, index)
                node.replace_input_with(index, expanded[key])
        return PassResult(model, modified=True)


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield from graph.all_nodes()


def _keeps_batch_one(node: ir.Node) -> bool:
    """Whether it takes caches by row (no position_ids), whose batch is 1 where that of x is not."""
    if (node.domain, node.op_type) != ("", "RotaryEmbedding") or any(node.inputs[3:]):
        return False
    x, *caches = node.inputs[:3]
    if x is None or _batch(x) == 1:
        return False
    return all(
        cache is not None and cache.shape is not None and len(cache.shape) == 3 and cache.shape[0] == 1
        for cache in caches
    )


def _batch(x: ir.Value) -> object:
    """Return the size or the name of the batch; the value itself, which shares with no other, where it has none."""
    dim = x.shape[0] if x.shape is not None else None
    return dim.value or x if isinstance(dim, ir.SymbolicDim) else dim or x


def _expand(node: ir.Node, index: int) -> ir.Value:
    """Insert the expansion of a cache before the node, and return it."""
    x, cache = node.inputs[0], node.inputs[index]
    assert x is not None
    assert cache is not None
    assert cache.shape is not None
    tape = ir.tape.Tape()
    batch = tape.op("Shape", [x], {"start": 0, "end": 1})
    ones = tape.op("Constant", [], {"value_ints": [1, 1]})
    shape = tape.op("Concat", [batch, ones], {"axis": 0})
    expanded = tape.op("Expand", [cache, shape], metadata_props=node.metadata_props)
    if cache.dtype is not None:
        expanded.dtype = cache.dtype
    expanded.shape = ir.Shape([x.shape[0] if x.shape is not None else None, *cache.shape[1:]])
    graph = node.graph
    assert graph is not None
    graph.insert_before(node, tape.nodes)
    return expanded
