"""The part of a graph that computes a site's weights, cut out and run by onnx's reference evaluator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from . import terms as t
from .additive import LARGEST_FILL
from .interpreter import Interpreter
from .sites import Site
from .terms import Term
from .values import NotFollowed, constant_of

__all__ = ["PATTERNS", "Cut", "OperatorCut", "Run", "evaluate"]

# By the bytes of an element: of sums of weights, and of scores of a few units.
TOLERANCES = {2: 2e-2, 4: 1e-4, 8: 1e-8}
# Operators whose result is as large as an input's values say.
SIZED = ("ConstantOfShape", "Expand", "Tile", "Range", "Pad", "Resize", "OneHot")
PATTERNS: tuple[str, ...] = ("ones", "zeros", "right", "left", "holes")

Run = Callable[[Mapping[str, np.ndarray]], Any]


def evaluate(term: Term, values: Mapping[str, int]) -> int:
    """Return a length as a number."""
    number = t.fixed(
        t.substitute(term, {s: t.integer(values[s.args[0]]) for s in _symbols(term) if s.args[0] in values})
    )
    if number is None:
        raise NotFollowed(f"the length {term} is not given by the inputs' shapes")
    return number


def _symbols(term: Term) -> list[Term]:
    return [atom for atom in t.atoms_of(term) if atom.op == "symbol"]


class Cut:
    """The part of a graph between its inputs and a site's scores, where the product and the biases are inputs, too."""

    engine = "onnx's reference evaluator"
    patterns: tuple[str, ...] = PATTERNS

    def __init__(self, x: Interpreter, site: Site) -> None:
        self.x, self.site = x, site
        self.random = np.random.default_rng(7)
        self.compared, self.replaced = self._compared(), self._replaced()
        # Tensors that the mask names and that the graph computes are read from the same run.
        read = [
            x.by_name[name]
            for name in site.mask.tensors
            if constant_of(x.by_name[name]) is None and x.by_name[name].producer() is not None
        ]
        outputs = list(dict.fromkeys([*self.compared, *read]))
        self.inputs, self.computed = _computed(outputs, self.replaced)
        graph = ir.convenience.extract(x.graph, [*self.inputs, *self.replaced], outputs)
        graph.opset_imports.update(x.graph.opset_imports)
        self.run = self._runner(graph)
        self.output_names = [str(value.name) for value in outputs]

    def _runner(self, graph: ir.Graph) -> Run:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(ir.to_proto(ir.Model(graph, ir_version=10)))
        return lambda feeds: evaluator.run(None, dict(feeds))

    def _compared(self) -> list[ir.Value]:
        """Return the values that are compared: scores and weights."""
        assert self.site.scores is not None
        assert self.site.weights is not None
        return [self.site.scores, self.site.weights]

    def _replaced(self) -> tuple[ir.Value, ...]:
        assert self.site.product is not None
        return tuple(dict.fromkeys((self.site.product, *self.site.added)))

    def _fill(self, value: ir.Value, lengths: Mapping[str, int]) -> np.ndarray:
        """Return what a replaced value is given."""
        shape = [evaluate(n, lengths) for n in self.x.shape(value)]
        dtype = value.dtype.numpy() if value.dtype else np.dtype(np.float32)
        return (self.random.standard_normal(shape) if value is self.site.product else np.zeros(shape)).astype(dtype)

    def _problem(
        self, attend: np.ndarray, feeds: Mapping[str, np.ndarray], results: Mapping[str, Any]
    ) -> tuple[str, np.ndarray] | None:
        """Return what disagrees with the lifted site, and where."""
        site = self.site
        shape = attend.shape
        scores, weights = (np.asarray(results[str(value.name)]) for value in self.compared)
        tolerance = TOLERANCES.get(min(scores.dtype.itemsize, weights.dtype.itemsize), 1e-4)
        scores = scores.reshape(*shape[:3], scores.shape[-1]).astype(np.float64)
        weights = weights.reshape(shape).astype(np.float64)
        inside = scores[..., : shape[3]]
        kept = inside > LARGEST_FILL / 2
        empty = ~attend.any(axis=-1, keepdims=True)
        # A row that is set to zero after the Softmax has scores all the same.
        differs = (attend != kept) & ~(empty & (weights == 0).all(axis=-1, keepdims=True))
        if differs.any():
            return "attends", differs
        with np.errstate(all="ignore"):
            if site.score_scale is not None and site.product is not None:
                product = feeds[str(site.product.name)].reshape(shape).astype(np.float64) * site.score_scale
                plain = np.tanh(product / site.softcap) * site.softcap if site.softcap else product
                if (wrong := attend & ~(np.abs(inside - plain) <= tolerance * 4)).any():
                    return "scales", wrong
            everything = np.where(attend, inside, -np.inf)
            if scores.shape[-1] > shape[3]:
                everything = np.concatenate([everything, scores[..., shape[3] :]], axis=-1)
            softmax = np.exp(everything - everything.max(axis=-1, keepdims=True))
            softmax = (softmax / softmax.sum(axis=-1, keepdims=True))[..., : shape[3]]
        if site.empty_rows == "zero":
            softmax = np.where(empty, 0.0, softmax)
        wrong = ~(np.abs(weights - softmax) <= tolerance) & ~(empty & (site.empty_rows != "zero"))
        return ("weighs", wrong) if wrong.any() else None

    @property
    def symbols(self) -> list[str]:
        """Names of the lengths that the inputs leave open."""
        lengths = [n for v in (*self.inputs, *self.replaced) for n in self.x.shape(v)]
        return list(dict.fromkeys(s.args[0] for n in lengths for s in _symbols(n)))

    def largest(self, lengths: Mapping[str, int]) -> int:
        """Return the elements of the largest value that is computed.

        Raises
        ------
        NotFollowed
            If the size of a value that is made by its size is not known.
        """
        sizes = [0]
        for value in (*self.inputs, *reversed(self.computed)):
            node = value.producer()
            try:
                sizes.append(math.prod(evaluate(n, lengths) for n in self.x.shape(value)))
            except NotFollowed:
                if node is not None and node.op_type in SIZED:
                    raise
        return max(sizes)

    def compare(self, lengths: Mapping[str, int], pattern: str) -> str | None:
        """Run once; return the first entry that disagrees, as text."""
        feeds = {str(value.name): self._fill(value, lengths) for value in self.replaced}
        for value in self.inputs:
            feeds[str(value.name)] = self._draw(value, [evaluate(n, lengths) for n in self.x.shape(value)], pattern)
        try:
            with np.errstate(all="ignore"):
                results = dict(zip(self.output_names, self.run(feeds), strict=True))
        except Exception as error:
            raise NotFollowed(f"{self.engine} fails: {_last_words(error)}") from error
        axes, mask = self.site.axes, self.site.mask
        q_len, k_len = evaluate(axes.q_len, lengths), evaluate(axes.k_len, lengths)
        past = 0 if axes.past is None else evaluate(axes.past, lengths)
        shape = (evaluate(t.length(axes.b), lengths), evaluate(t.length(axes.h), lengths), q_len, k_len)
        named = dict(zip("bhqkp", (*shape, k_len), strict=True))
        tensors = {
            name: _as_mask(self._array(name, feeds, results), [named[axis] for axis in spec.dims])
            for name, spec in mask.tensors.items()
        }
        lifted = mask.dense(q_len, k_len, past, **tensors)
        lifted = np.broadcast_to(lifted, shape)
        found = self._problem(lifted, feeds, results)
        if found is None:
            return None
        what, where = found
        b, h, q, k = (int(i) for i in np.argwhere(where)[0])
        what = "masks" if what == "attends" and not lifted[b, h, q, k] else what
        return (
            f"`{mask}` {what} b={b}, h={h}, q={q}, k={k} at Q={q_len}, K={k_len} with {pattern} masks, "
            f"and the graph does not{' so' if what in ('scales', 'weighs') else ''}"
        )

    def _array(self, name: str, feeds: Mapping[str, np.ndarray], results: Mapping[str, Any]) -> np.ndarray:
        if name in feeds:
            return feeds[name]
        constant = constant_of(self.x.by_name[name])
        return np.asarray(results[name] if constant is None else constant.numpy())

    def _draw(self, value: ir.Value, shape: Sequence[int], pattern: str) -> np.ndarray:
        dtype = value.dtype.numpy() if value.dtype is not None else np.dtype(np.int64)
        spec = self.site.mask.tensors.get(str(value.name))
        if dtype.kind == "f":
            if any(name == value.name for name, _ in self.site.assumes):
                return _pattern(shape, pattern, self.random).astype(dtype)
            return self.random.standard_normal(shape).astype(dtype)
        if spec is not None and spec.dims == "b":
            return self.random.integers(0, 9, shape).astype(dtype)
        drawn = _pattern(shape, pattern, self.random)
        if dtype.kind == "b" or any(name == value.name for name, _ in self.site.assumes):
            return drawn.astype(dtype)
        if spec is None:
            # Read for its shape at most, perhaps through an embedding: any table has two rows.
            return drawn.astype(dtype)
        # Where ones and zeros are not taken for granted, other numbers must do as well.
        return np.where(drawn, self.random.integers(1, 4, shape), 0).astype(dtype)


class OperatorCut(Cut):
    """An ai.onnx Attention with queries and keys of zero and values that are the identity."""

    def largest(self, lengths: Mapping[str, int]) -> int:
        axes = self.site.axes
        b, h, q, k = (evaluate(n, lengths) for n in (t.length(axes.b), t.length(axes.h), axes.q_len, axes.k_len))
        # Weights and values are nowhere in the graph.
        return max(super().largest(lengths), b * h * q * k, b * h * k * k)

    def _compared(self) -> list[ir.Value]:
        return [self.site.node.outputs[0]]

    def _replaced(self) -> tuple[ir.Value, ...]:
        places = (0, 1, 2, 4, 5)
        values = [self.site.node.inputs[place] for place in places if place < len(self.site.node.inputs)]
        return tuple(dict.fromkeys(value for value in values if value is not None))

    def _fill(self, value: ir.Value, lengths: Mapping[str, int]) -> np.ndarray:
        filled = np.zeros_like(super()._fill(value, lengths))
        inputs, axes = self.site.node.inputs, self.site.axes
        is_past = len(inputs) > 5 and value is inputs[5]
        if value is not inputs[2] and not is_past:
            return filled
        if value in (inputs[0], inputs[1]):
            raise NotFollowed("its values are its queries or keys")
        total = evaluate(axes.k_len, lengths)
        past = 0 if axes.past is None else evaluate(axes.past, lengths)
        rows = np.eye(total, dtype=filled.dtype)[:past] if is_past else np.eye(total, dtype=filled.dtype)[past:]
        if filled.ndim == 4:
            return np.broadcast_to(rows, (*filled.shape[:2], *rows.shape)).copy()
        heads = self.site.node.attributes["kv_num_heads"].as_int()
        return np.broadcast_to(np.tile(rows, heads), (filled.shape[0], len(rows), heads * total)).copy()

    def _problem(
        self, attend: np.ndarray, feeds: Mapping[str, np.ndarray], results: Mapping[str, Any]
    ) -> tuple[str, np.ndarray] | None:
        (value,) = self.compared
        output, shape = np.asarray(results[str(value.name)], np.float64), attend.shape
        if output.ndim == 3:
            output = output.reshape(shape[0], shape[2], shape[1], -1).transpose(0, 2, 1, 3)
        # A bias weighs keys unlike, and a masked key has no weight at all.
        differs = attend != (output > 0)
        if self.site.empty_rows != "zero":
            differs &= attend.any(axis=-1, keepdims=True)
        return ("attends", differs) if differs.any() else None


def _last_words(error: Exception) -> str:
    """Return the line of a message that says most."""
    return str(error).splitlines()[0].rpartition("Status Message: ")[2][:120]


def _pattern(shape: Sequence[int], pattern: str, random: np.random.Generator) -> np.ndarray:
    length = shape[-1] if shape else 1
    positions = np.broadcast_to(np.arange(length), shape)
    lengths = random.integers(1, length + 1, (*shape[:-1], 1)) if shape else np.ones(())
    drawn: dict[str, Any] = {
        "ones": np.ones(shape, bool),
        "zeros": np.zeros(shape, bool),
        "right": positions < lengths,
        "left": positions >= length - lengths,
        "holes": random.random(shape) < 0.6,
    }
    return np.asarray(drawn[pattern])


def _as_mask(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return a mask's tensor at the lengths of a case: of a longer one what comes first."""
    for axis, n in zip(range(-1, -1 - array.ndim, -1), reversed(shape), strict=False):
        if array.shape[axis] > n:
            array = array.take(range(n), axis)
        elif array.shape[axis] not in (1, n):
            raise NotFollowed(f"a mask of shape {array.shape} is shorter than {list(shape)}")
    return array != 0 if array.dtype.kind == "f" else array


def _computed(outputs: Sequence[ir.Value], stops: Sequence[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
    """Return the graph inputs that values depend on, where the stops are given, and what is computed from them."""
    seen: set[ir.Value] = set(stops)
    found: dict[ir.Value, None] = {}
    computed = list(stops)
    waiting = list(outputs)
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        node = value.producer()
        if node is not None:
            computed.append(value)
            waiting += [v for v in node.inputs if v is not None]
        elif constant_of(value) is None:
            found[value] = None
    return list(found), computed
