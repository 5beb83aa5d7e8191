"""Evaluate ONNX values in the index domain: the element of a tensor at symbolic indices, and its symbolic shape.

Each operator that moves, compares or combines elements has a rule in `rules`; what has none is loaded by its name.
Nothing here knows who exported a graph.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from . import terms as t
from .terms import Term

__all__ = ["Index", "Interpreter", "NotFollowed"]

Index = tuple[Term, ...]

# Arrays of up to this many elements are looked up by a constant index.
LARGEST_LOOKUP = 1 << 16
DEEPEST = 400
# Of Python's stack: what DEEPEST operators, and the terms in them, take.
DEEPEST_STACK = 12_000


class NotFollowed(Exception):
    """A value that can't be evaluated; the message says at which node and why."""


class Interpreter:
    """Terms and shapes of the values of one graph, each computed once."""

    def __init__(self, graph: ir.Graph, known: dict[str, Term] | None = None) -> None:
        self.graph = graph
        # Scalars that the caller knows more of than the graph says.
        self._terms: dict[tuple[ir.Value, Index], Term] = {
            (value, ()): known[value.name] for value in graph.inputs if known and value.name in known
        }
        self._shapes: dict[ir.Value, Index] = {}
        self._depth = 0
        self.by_name: dict[str, ir.Value] = {}
        # Elements that are no scores of an attention, and why: looked for once.
        self.no_scores: dict[tuple[ir.Value, Index], NotFollowed] = {}
        # Why a value was not looked into, where that was for more than the lack of a rule.
        self.reasons: dict[ir.Value, str] = {}

    def dimension(self, name: str) -> Term:
        """Return the symbol of a length, which is at least 1."""
        return t.symbol(name, t.ONE)

    def shape_of(self, name: str) -> Index:
        """Return the lengths of a value that was loaded by its name."""
        return self.shape(self.by_name[name]) if name in self.by_name else ()

    def shape(self, value: ir.Value) -> Index:
        """Return the lengths of a value.

        Raises
        ------
        NotFollowed
            If its rank is unknown.
        """
        if value not in self._shapes:
            self._shapes[value] = self._entered(value, lambda: self._shape(value))
        return self._shapes[value]

    def _shape(self, value: ir.Value) -> Index:
        from . import rules

        node = value.producer()
        if (tensor := constant_of(value)) is not None:
            return tuple(t.integer(int(d)) for d in tensor.shape.numpy())
        if node is not None and (rule := rules.SHAPES.get(node.op_type)) is not None and is_standard(node):
            try:
                return rule(self, node, value)
            except (NotFollowed, t.TooLarge):
                pass
        if value.shape is None:
            raise NotFollowed(f"{describe(value)} has no known rank")
        # A length that the graph only names is a symbol; one that it doesn't name is this value's own.
        return tuple(
            t.integer(d) if isinstance(d, int) else self.dimension(d.value or f"{value.name}.shape[{axis}]")
            for axis, d in enumerate(value.shape)
        )

    def term(self, value: ir.Value, index: Index) -> Term:
        """Return the element of a value at an index.

        Raises
        ------
        NotFollowed
            If the value is no tensor, or the graph is nested too deeply.
        """
        key = (value, index)
        if key not in self._terms:
            self._terms[key] = self._entered(value, lambda: self._term(value, index))
        return self._terms[key]

    def _term(self, value: ir.Value, index: Index) -> Term:
        from . import rules

        if (tensor := constant_of(value)) is not None:
            return self._constant(value, tensor, index)
        node = value.producer()
        if node is not None and is_standard(node):
            try:
                found = rules.element(self, node, value, index)
            except (NotFollowed, t.TooLarge) as error:
                found = None
                self.reasons.setdefault(value, str(error))
            if found is not None:
                return found
        return self.opaque(value, index)

    def opaque(self, value: ir.Value, index: Index) -> Term:
        """Return an element of a value that is not looked into."""
        kind = kind_of(value)
        if kind is None or value.name is None:
            raise NotFollowed(f"{describe(value)} has no known type")
        self.by_name[value.name] = value
        return t.load(kind, value.name, index)

    def _entered(self, value: ir.Value, evaluate: Any) -> Any:
        if self._depth >= DEEPEST:
            raise NotFollowed(f"{describe(value)} is nested more than {DEEPEST} operators deep")
        self._depth += 1
        try:
            return evaluate()
        finally:
            self._depth -= 1

    def _constant(self, value: ir.Value, tensor: ir.TensorProtocol, index: Index) -> Term:
        at = [t.fixed(i) for i in index]
        if all(i is not None for i in at) and tensor.size <= LARGEST_LOOKUP:
            array = tensor.numpy()
            if all(-n <= i < n for i, n in zip(at, array.shape, strict=True)):
                return constant(array[tuple(at)])
        recognised = self._recognise(value, tensor, index)
        return self.opaque(value, index) if recognised is None else recognised

    def _recognise(self, value: ir.Value, tensor: ir.TensorProtocol, index: Index) -> Term | None:
        """Return what a constant array is as a function of its index: one value, a range or a band."""
        pattern = _pattern_of(value)
        if pattern is None:
            return None
        axes, function = pattern
        return function(*(index[axis] for axis in axes))

    def vector(self, value: ir.Value) -> list[Term]:
        """Return the elements of a value of rank 1 (or 0) and known length.

        Raises
        ------
        NotFollowed
            If its length is not a number.
        """
        shape = self.shape(value)
        if not shape:
            return [t.to_int(self.term(value, ()))]
        length = t.fixed(shape[0])
        if len(shape) != 1 or length is None or length > 64:
            raise NotFollowed(f"{describe(value)} is no short vector")
        return [t.to_int(self.term(value, (t.integer(i),))) for i in range(length)]

    def numbers(self, value: ir.Value) -> list[int]:
        """Return the elements of a vector of constants.

        Raises
        ------
        NotFollowed
            If one is not a number.
        """
        fixed = [t.fixed(term) for term in self.vector(value)]
        if any(n is None for n in fixed):
            raise NotFollowed(f"{describe(value)} is not constant")
        return fixed  # type: ignore[return-value]


@contextlib.contextmanager
def deep_stack() -> Iterator[None]:
    """Let Python's stack grow to what a graph may take."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, DEEPEST_STACK))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def constant_of(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer or of a Constant, else None."""
    return ir.convenience.get_const_tensor(value)


def constant(element: Any) -> Term:
    """Return a numpy scalar as a term."""
    if element.dtype == bool:
        return t.TRUE if element else t.FALSE
    if element.dtype.kind in "iu":
        return t.integer(int(element))
    return t.number(element)


def kind_of(value: ir.Value) -> str | None:
    """Return "bool", "int" or "float"."""
    dtype = value.dtype
    if dtype is None:
        return None
    if dtype == ir.DataType.BOOL:
        return "bool"
    return "float" if dtype.is_floating_point() else "int" if dtype.is_integer() else None


def is_standard(node: ir.Node) -> bool:
    """Return whether a node is an operator of ONNX itself."""
    return node.domain in ("", "ai.onnx")


def describe(value: ir.Value) -> str:
    """Name a value for people: itself and the operator that makes it."""
    node = value.producer()
    return f"{value.name!r} (from {node.op_type})" if node is not None else f"{value.name!r}"


@functools.lru_cache(maxsize=1024)
def _pattern_of(value: ir.Value) -> tuple[tuple[int, ...], Any] | None:
    """Return the axes that a constant array varies along, and its term as a function of the indices there."""
    tensor = constant_of(value)
    assert tensor is not None
    try:
        array = tensor.numpy()
    except Exception:  # external data that is not there
        return None
    if array.size == 0 or array.dtype.kind not in "biuf":
        return None
    axes = tuple(axis for axis, n in enumerate(array.shape) if n > 1)
    squeezed = array.reshape([array.shape[axis] for axis in axes])
    first = constant(np.asarray(squeezed.flat[0]).astype(array.dtype)[()])
    if (squeezed == squeezed.flat[0]).all():
        return (), lambda: first
    if squeezed.ndim == 1 and array.dtype.kind in "iu":
        step = int(squeezed[1]) - int(squeezed[0])
        if (np.diff(squeezed.astype(np.int64)) == step).all():
            start = int(squeezed[0])
            return axes, lambda i: t.add(t.integer(start), t.mul(t.integer(step), i))
    if squeezed.ndim == 2:
        band = _band(squeezed)
        return None if band is None else (axes, band)
    return None


def _band(array: np.ndarray[Any, Any]) -> Any:
    """Recognise two values, one where low <= column - row <= high: a triangle or a window, by its values alone."""
    one = array[0, 0]
    other = array.flat[int(np.argmax(array != one))]
    if not ((array == one) | (array == other)).all():
        return None
    for inside, outside in ((one, other), (other, one)):
        bounds = _bounds(array == inside)
        if bounds is not None:
            chosen = (constant(np.asarray(v).astype(array.dtype)[()]) for v in (inside, outside))
            return functools.partial(_choose_in_band, *bounds, *chosen)
    return None


def _bounds(inside: np.ndarray[Any, Any]) -> tuple[int | None, int | None] | None:
    """Return the least and the largest column - row of the true entries, if they are all between; None is no bound."""
    rows, columns = inside.shape
    place, found = np.arange(rows), inside.any(axis=1)
    first, last = inside.argmax(axis=1), columns - 1 - inside[:, ::-1].argmax(axis=1)
    low, high = int((first - place)[found].min()), int((last - place)[found].max())
    from_, to = np.maximum(place + low, 0), np.minimum(place + high, columns - 1)
    if (found != (from_ <= to)).any():
        return None
    wrong = (first != from_) | (last != to) | (inside.sum(axis=1) != last - first + 1)
    if wrong[found].any():
        return None
    # A bound that the array's corner reaches is no bound: the rest of a longer array isn't there to say so.
    return (low if low > 1 - rows else None), (high if high < columns - 1 else None)


def _choose_in_band(least: int | None, most: int | None, inside: Term, outside: Term, q: Term, k: Term) -> Term:
    difference = t.sub(k, q)
    parts = []
    if least is not None:
        parts.append(t.at_most_zero(t.sub(t.integer(least), difference)))
    if most is not None:
        parts.append(t.at_most_zero(t.sub(difference, t.integer(most))))
    return t.choose(t.both(*parts), inside, outside)
