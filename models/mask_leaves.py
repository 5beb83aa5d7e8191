"""The leaves of the mask algebra as one table, and what an expression of them evaluates to.

An expression is a nested tuple: `(leaf, *arguments)` with a name of `LEAVES`, `("not", e)`, `("and", e, ...)` or
`("or", e, ...)`. A leaf's predicate is written once, over any object that has the five members of `Points`; arrays,
single points, ONNX values and logic (dense, mask_mod, to_onnx, equality) are such objects.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from .mask_rows import Affine, format_name, past

__all__ = ["LEAVES", "Expr", "Leaf", "Points", "TensorSpec", "evaluate", "leaves_of", "renamed", "tensors_of"]

Expr = tuple[Any, ...]


class Points(Protocol):
    """Index points `(b, h, q, k)` at which a predicate is evaluated.

    `p` is `q + past`. `load(name, axes)` reads a tensor at the named axes (`"bk"` is `name[b, k]`), `row(affine)`
    gives a row argument's value at b, and `true` is what a predicate without indices returns.
    """

    q: Any
    k: Any
    p: Any
    true: Any

    def load(self, name: str, axes: str) -> Any: ...

    def row(self, affine: Affine) -> Any: ...


@dataclass(frozen=True)
class Leaf:
    """One kind of leaf: its Python constructor, its predicate and its text."""

    constructor: str
    attend: Callable[..., Any]
    text: Callable[..., str]


def _window(x: Points, left: int, right: int, offset: Affine) -> Any:
    center = x.q + x.row(offset)
    at_least = center - left <= x.k if left >= 0 else x.true
    at_most = x.k <= center + right if right >= 0 else x.true
    return at_least & at_most


def _segments(x: Points, k_name: str, q_name: str | None) -> Any:
    of_query = x.load(k_name, "bp") if q_name is None else x.load(q_name, "bq")
    return of_query == x.load(k_name, "bk")


def _call(name: str, *arguments: object) -> str:
    return f"{name}({', '.join(str(a) for a in arguments)})" if arguments else name


def _names(name: str, *names: str | None) -> str:
    return _call(name, *(format_name(n) for n in names if n is not None))


def _not_pad(leaf: str, name: str, pad: int) -> str:
    return _call(leaf, format_name(name) + (f" != {pad}" if pad else ""))


def _offset(offset: Affine) -> tuple[Affine, ...]:
    return () if offset == past else (offset,)


LEAVES: dict[str, Leaf] = {
    "full": Leaf("Full", lambda x: x.true, lambda: "full"),
    "causal": Leaf(
        "Causal",
        lambda x, offset: x.k <= x.q + x.row(offset),
        lambda offset: _call("causal", *_offset(offset)),
    ),
    "window": Leaf("Window", _window, lambda left, right, offset: _call("window", left, right, *_offset(offset))),
    "chunked": Leaf("Chunked", lambda x, size: x.p // size == x.k // size, lambda size: _call("chunked", size)),
    "prefix": Leaf("Prefix", lambda x, length: x.k < x.row(length), lambda length: _call("prefix", length)),
    "padding": Leaf(
        "KeyPadding",
        lambda x, name, pad: x.load(name, "bk") != pad,
        lambda name, pad: _not_pad("padding", name, pad),
    ),
    "query_padding": Leaf(
        "QueryPadding",
        lambda x, name, pad: x.load(name, "bp") != pad,
        lambda name, pad: _not_pad("query_padding", name, pad),
    ),
    "segments": Leaf("Segments", _segments, lambda k_name, q_name: _names("segments", k_name, q_name)),
    "adjacency": Leaf("Adjacency", lambda x, name: x.load(name, "bqk") != 0, lambda name: _names("adjacency", name)),
    "dense": Leaf("Dense", lambda x, name: x.load(name, "bhqk"), lambda name: _names("dense", name)),
}


def evaluate(expr: Expr, x: Points) -> Any:
    """Evaluate an expression at the points `x`."""
    head, *arguments = expr
    if head == "not":
        return ~evaluate(arguments[0], x)
    if head in ("and", "or"):
        join = operator.and_ if head == "and" else operator.or_
        return functools.reduce(join, (evaluate(argument, x) for argument in arguments))
    return LEAVES[head].attend(x, *arguments)


def leaves_of(expr: Expr) -> Iterator[Expr]:
    """Yield the leaves of an expression from left to right."""
    if expr[0] in ("not", "and", "or"):
        for argument in expr[1:]:
            yield from leaves_of(argument)
    else:
        yield expr


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """Return an expression that reads other tensors, by their old names."""
    head, *arguments = expr
    if head in ("not", "and", "or"):
        return (head, *(renamed(argument, names) for argument in arguments))
    return (head, *(_renamed(argument, names) for argument in arguments))


def _renamed(argument: Any, names: Mapping[str, str]) -> Any:
    if isinstance(argument, Affine):
        return replace(argument, rows=tuple((names.get(name, name), c) for name, c in argument.rows))
    return names.get(argument, argument) if isinstance(argument, str) else argument


@dataclass(frozen=True)
class TensorSpec:
    """What a mask asks of one tensor.

    Attributes
    ----------
    name : str
        The tensor's name in the expression.
    reads : frozenset of str
        The axes at which it is read: `"b"`, `"bk"`, `"bp"`, `"bq"`, `"bqk"`, `"bhqk"`, with `p = q + past`.
    """

    name: str
    reads: frozenset[str]

    @property
    def dims(self) -> str:
        """Its axes, one letter each: `"b"`, `"bk"`, `"bq"`, `"bqk"` or `"bhqk"`."""
        return "bk" if "bp" in self.reads else min(self.reads)

    @property
    def rank(self) -> int:
        """Its number of dimensions (a `Dense` tensor may have fewer: it is broadcast to 4)."""
        return len(self.dims)

    @property
    def kinds(self) -> str:
        """The kinds of its elements: "b" for bool, "i" for integers."""
        return {"b": "i", "bq": "i", "bhqk": "b"}.get(self.dims, "bi")

    @property
    def shape(self) -> str:
        """Its shape as people write it."""
        return _SHAPES[self.dims]


_SHAPES = {
    "b": "int [B]",
    "bk": "bool or int [B, K]",
    "bq": "int [B, Q]",
    "bqk": "bool or int [B or 1, Q, K]",
    "bhqk": "bool, broadcastable to [B, H, Q, K]",
}


class _Anything:
    """Stands for every value of a predicate while its reads are recorded."""

    def _same(self, *_: Any) -> _Anything:
        return self

    __add__ = __sub__ = __floordiv__ = __and__ = __or__ = __invert__ = _same
    __le__ = __lt__ = __ge__ = __gt__ = __eq__ = __ne__ = _same  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class _Recorder(_Anything):
    def __init__(self) -> None:
        self.reads: dict[str, set[str]] = {}
        self.q = self.k = self.p = self.true = _Anything()

    def load(self, name: str, axes: str) -> _Anything:
        self.reads.setdefault(name, set()).add(axes)
        return self.true

    def row(self, affine: Affine) -> _Anything:
        return self.load(affine.row, "b") if affine.row is not None else self.true


@functools.lru_cache(maxsize=4096)
def tensors_of(expr: Expr) -> dict[str, TensorSpec]:
    """Return what an expression reads, by name, in order of first use.

    Raises
    ------
    ValueError
        If one name is read as tensors of two shapes.
    """
    recorder = _Recorder()
    evaluate(expr, recorder)
    specs = {name: TensorSpec(name, frozenset(reads)) for name, reads in recorder.reads.items()}
    for name, spec in specs.items():
        shapes = {TensorSpec(name, frozenset([axes])).shape for axes in spec.reads}
        if len(shapes) > 1:
            raise ValueError(
                f"one name is one tensor, but {format_name(name)} is used as {' and as '.join(sorted(shapes))}; "
                "give the two different names"
            )
    return specs
