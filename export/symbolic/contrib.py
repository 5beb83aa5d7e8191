"""A site that is ONNX Runtime's own operator, cut out of its graph and run by ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from . import rules
from . import terms as t
from .cut import OperatorCut, Run, evaluate
from .interpreter import Interpreter
from .sites import Site
from .values import NotFollowed, constant_of

__all__ = ["ContribCut"]

# Patterns of masks that leave every row a key.
NONEMPTY = ("ones", "right", "left")


@dataclass(frozen=True)
class _Inputs:
    """Places of what an operator is given instead of what its graph computes, and of its cache."""

    replaced: tuple[int, ...]
    cache: int
    outputs: int


_INPUTS = {
    "MultiHeadAttention": _Inputs((0, 1, 2, 3, 6, 7), cache=6, outputs=3),
    "GroupQueryAttention": _Inputs((0, 1, 2, 6), cache=3, outputs=3),
    "Attention": _Inputs((0, 1, 2, 4), cache=4, outputs=2),
}


class ContribCut(OperatorCut):
    """ONNX Runtime's own operator, run by it on the CPU."""

    engine = "ONNX Runtime"

    def __init__(self, x: Interpreter, site: Site) -> None:
        node = site.node
        self.places = _INPUTS[node.op_type]
        self.grouped = node.op_type == "GroupQueryAttention"
        cached = rules.optional(node, self.places.cache) is not None
        if cached and self.grouped:
            raise NotFollowed(f"how many keys {site.form} finds in its cache is a value, not a length")
        if cached and sum(bool(output.name) for output in node.outputs) < self.places.outputs:
            raise NotFollowed("ONNX Runtime leaves out the cache of an operator that doesn't return it, on the CPU")
        if any(len(x.shape(value)) == 5 for value in node.inputs[:2] if value is not None):
            raise NotFollowed("ONNX Runtime has no packed queries, keys and values on the CPU")
        if node.op_type == "Attention" and rules.optional(node, 2) is None:
            raise NotFollowed("ONNX Runtime ends the process on one without a bias, on the CPU")
        if "qkv_hidden_sizes" in node.attributes:
            raise NotFollowed("its hidden sizes are fixed, so that its values can't be the identity")
        if self.grouped:
            # It takes no row without keys.
            self.patterns = NONEMPTY
        super().__init__(x, site)

    def _runner(self, graph: ir.Graph) -> Run:
        try:
            import onnxruntime as ort
        except ImportError:
            raise NotFollowed("ONNX Runtime is not installed, whose operator it is") from None
        # What is replaced may be of another head size.
        replaced = {value.name for value in self.replaced}
        for value in (*graph.outputs, *(value for value in graph.inputs if value.name in replaced)):
            value.shape = None
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        proto = ir.to_proto(ir.Model(graph, ir_version=10))
        session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return lambda feeds: session.run(None, dict(feeds))

    def compare(self, lengths: Mapping[str, int], pattern: str) -> str | None:
        axes = self.site.axes
        sizes = [evaluate(n, lengths) for n in (t.length(axes.b), t.length(axes.h), axes.q_len, axes.k_len)]
        if min(sizes) < 1:
            # GroupQueryAttention ends the process on an empty batch.
            raise NotFollowed(f"its lengths are {sizes}")
        self.total = sizes[-1]
        return super().compare(lengths, pattern)

    def _compared(self) -> list[ir.Value]:
        computed = [value for value in [self._row_lengths()] if value is not None and value.producer() is not None]
        return [self.site.node.outputs[0], *(value for value in computed if constant_of(value) is None)]

    def _row_lengths(self) -> ir.Value | None:
        return self.site.node.inputs[5] if self.grouped else None

    def _replaced(self) -> tuple[ir.Value, ...]:
        node = self.site.node
        values = [rules.optional(node, place) for place in self.places.replaced]
        if self.grouped and (total := rules.optional(node, 6)) is not None and constant_of(total) is not None:
            values.remove(total)
        found = [value for value in values if value is not None]
        if len(set(found)) < len(found):
            raise NotFollowed("one value is two of its queries, keys and values")
        return tuple(found)

    def _fill(self, value: ir.Value, lengths: Mapping[str, int]) -> np.ndarray:
        place = next(at for at, given in enumerate(self.site.node.inputs) if given is value)
        dtype = value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)
        return self._given(lengths)[place].astype(dtype)

    def _given(self, lengths: Mapping[str, int]) -> dict[int, np.ndarray]:
        """Return inputs by their place: zeros, but for values that are the identity."""
        node, site, axes = self.site.node, self.site, self.site.axes
        assert site.q_heads is not None
        heads = site.q_heads
        batch, queries = evaluate(t.length(axes.b), lengths), evaluate(axes.q_len, lengths)
        past = 0 if axes.past is None else evaluate(axes.past, lengths)
        size = site.head_size or 0
        if size < self.total:
            # Sizes that every kernel takes.
            size = -(-self.total // 8) * 8
        groups = node.attributes["kv_num_heads"].as_int() if self.grouped else heads
        old, new = (
            np.broadcast_to(rows, (batch, groups, *rows.shape)) for rows in np.split(np.eye(self.total, size), [past])
        )
        projection = np.zeros(3 * heads * size)
        if node.op_type == "Attention":
            # The values are the identity times weights that repeat it for each head.
            weights = np.zeros((size, 3 * heads * size))
            weights[:, 2 * heads * size :] = np.tile(np.eye(size), heads)
            return {0: new[:, 0], 1: weights, 2: projection, 4: np.stack([np.zeros_like(old), old])}

        def as_taken(place: int, by_head: np.ndarray) -> np.ndarray:
            operand = rules.optional(node, place)
            if operand is not None and len(self.x.shape(operand)) == 4:
                return by_head
            return by_head.transpose(0, 2, 1, 3).reshape(batch, by_head.shape[2], -1)

        query = np.zeros((batch, queries, heads * size))
        keys, values = as_taken(1, np.zeros_like(new)), as_taken(2, new)
        if rules.optional(node, 1) is None:
            query = np.concatenate([query, keys, values], -1)
        if self.grouped:
            total = rules.optional(node, 6)
            shape = () if total is None else [evaluate(n, lengths) for n in self.x.shape(total)]
            return {0: query, 1: keys, 2: values, 6: np.full(shape, self.total)}
        return {0: query, 1: keys, 2: values, 3: projection, 6: np.zeros_like(old), 7: old}

    def _draw(self, value: ir.Value, shape: Sequence[int], pattern: str) -> np.ndarray:
        if value is self._row_lengths():
            return self.random.integers(0, self.total, shape).astype(np.int32)
        spec = self.site.mask.tensors.get(str(value.name))
        if spec is not None and spec.dims.endswith("k") and t.fixed(self.x.shape(value)[-1]) is None:
            # The graph calls the number of old and new keys by a name of its own.
            shape = [*shape[:-1], self.total]
        return super()._draw(value, shape, pattern)

    def _problem(
        self, attend: np.ndarray, feeds: Mapping[str, np.ndarray], results: Mapping[str, Any]
    ) -> tuple[str, np.ndarray] | None:
        batch, heads, queries, keys = attend.shape
        output = np.asarray(results[str(self.compared[0].name)], np.float64)
        weights = output.reshape(batch, queries, heads, -1).transpose(0, 2, 1, 3)[..., :keys]
        # A row without keys is each kernel's own.
        differs = (attend != (weights > 0)) & attend.any(axis=-1, keepdims=True)
        if (rows := self._row_lengths()) is not None:
            self.x.by_name.setdefault(str(rows.name), rows)
            # So is a query that is no key of its row.
            last = self._array(str(rows.name), feeds, results).reshape(-1, 1, 1, 1)
            differs &= np.arange(queries)[:, None] <= last
        return ("attends", differs) if differs.any() else None
