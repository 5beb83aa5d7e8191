"""Evaluate ONNX values in the index domain: the element of a tensor at symbolic indices, and its symbolic shape.

Each operator that moves, compares or combines elements has a rule in `rules`; what has none is loaded by its name.
Nothing here knows who exported a graph.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

from . import rules
from . import terms as t
from .baked import pattern_of
from .terms import Term
from .values import Index, NotFollowed, constant, constant_of, describe, is_standard, kind_of

__all__ = ["Interpreter", "deep_stack"]

# Arrays of up to this many elements are looked up by a constant index.
LARGEST_LOOKUP = 1 << 16
DEEPEST = 400
# Of Python's stack: what DEEPEST operators, and the terms in them, take.
DEEPEST_STACK = 12_000


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
        node = value.producer()
        if (tensor := constant_of(value)) is not None:
            return tuple(t.integer(int(d)) for d in tensor.shape.numpy())
        if node is not None and (rule := rules.shape_rule(node)) is not None:
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
        if (tensor := constant_of(value)) is not None:
            return self._constant(value, tensor, index)
        node = value.producer()
        if node is not None and is_standard(node):
            with contextlib.suppress(NotFollowed, t.TooLarge):
                found = rules.element(self, node, value, index)
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
        pattern = pattern_of(value)
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
