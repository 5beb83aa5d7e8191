"""From a boolean term at (b, h, q, k) to an expression of the mask algebra."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...models.masks import (
    Adjacency,
    Affine,
    Causal,
    Chunked,
    Dense,
    Full,
    K,
    KeyPadding,
    Mask,
    Prefix,
    Q,
    QueryPadding,
    Row,
    Segments,
    Window,
    past,
)
from . import terms as t
from .terms import Term
from .values import NotFollowed

__all__ = ["Axes", "to_mask"]


@dataclass
class Axes:
    """The indices that a mask is a function of, their lengths, and what was taken for granted on the way.

    Attributes
    ----------
    b, h, q, k : Term
        The indices.
    q_len, k_len : Term
        Lengths.
    past : Term or None
        Number of keys before the first query; None if the graph has no cache, so that it is 0.
    shape_of : callable
        The lengths of a tensor that is loaded by its name.
    assumes : set of (str, str)
        Pairs of a tensor's name and a check of `maskport.assumes` under which the mask is exact.
    """

    b: Term
    h: Term
    q: Term
    k: Term
    q_len: Term
    k_len: Term
    past: Term | None = None
    shape_of: Callable[[str], tuple[Term, ...]] = lambda name: ()
    assumes: set[tuple[str, str]] = field(default_factory=set)

    @property
    def p(self) -> Term:
        """The position of the query."""
        return self.q if self.past is None else t.add(self.q, self.past)

    def letters(self, load: Term) -> str:
        """Name each index of a load by its axis: b, h, q, k, p (with a cache), 1 (of an axis of length 1), or ?."""
        name, index = load.args
        known = {self.b: "b", self.h: "h", self.k: "k", self.p: "p", self.q: "q"}
        shape = self.shape_of(name) or (None,) * len(index)
        return "".join(
            "1" if n is t.ONE else known.get(i, "?") if i is not t.ZERO else "0"
            for i, n in zip(index, shape, strict=True)
        )

    def reads(self, load: Term, axes: str) -> bool:
        """Return whether a load reads a tensor at these axes, the first of which may have length 1."""
        letters = self.letters(load)
        return letters == axes or (axes.startswith("b") and letters == "1" + axes[1:])

    def broadcasts(self, shape: Sequence[Term]) -> bool:
        """Return whether a shape broadcasts to [B, H, Q, K]."""
        lengths = (*(t.length(index) for index in (self.b, self.h)), self.q_len, self.k_len)
        # What is cut to a length, and may be shorter, is as long wherever the graph runs.
        return len(shape) <= 4 and all(
            t.fixed(n) == 1 or n is length or (n.op == "min" and length in n.args)
            for n, length in zip(shape, lengths[4 - len(shape) :], strict=True)
        )

    @property
    def query(self) -> str:
        """The letter of a query's position."""
        return "q" if self.past is None else "p"


def to_mask(term: Term, axes: Axes) -> Mask:
    """Return a boolean term as a mask.

    Raises
    ------
    NotFollowed
        If a part of it has no leaf in the algebra, or reads a tensor by a name that masks keep for their lengths.
    """
    try:
        return _to_mask(term, axes)
    except ValueError as error:
        raise NotFollowed(str(error)) from None


def _to_mask(term: Term, axes: Axes) -> Mask:
    match term.op:
        case "true":
            return Full()
        case "false":
            return ~Full()
        case "not":
            return ~_to_mask(term.args[0], axes)
        case "and" | "or":
            masks = [_to_mask(part, axes) for part in term.args]
            joined = masks[0]
            for mask in masks[1:]:
                joined = joined & mask if term.op == "and" else joined | mask
            return joined
        case "load":
            return _loaded(term, axes)
        case "zero":
            return _zero(term.args[0], axes)
        case "at_most_zero":
            return _at_most_zero(term.args[0], axes)
        case "nonzero" if term.args[0].op == "load":
            return _loaded(term.args[0], axes)
        case "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" | "Equal":
            return _float_relation(term, axes)
    raise NotFollowed(f"{term.op} is no comparison of positions or tensors")


def _loaded(term: Term, axes: Axes) -> Mask:
    """Return a bool element (or an integer that is not 0) as a mask."""
    name, letters = term.args[0], axes.letters(term)
    if term.kind == "float" and not any(axes.reads(term, at) for at in ("bk", "b" + axes.query, "bqk")):
        raise NotFollowed(f"{name!r} is a float that is read at [{', '.join(letters)}], which no leaf does")
    if axes.reads(term, "bk"):
        return KeyPadding(name)
    if axes.reads(term, "b" + axes.query):
        return QueryPadding(name)
    if axes.reads(term, "bqk"):
        return Adjacency(name)
    aligned = all(letter in ("1", expected) for letter, expected in zip(letters[::-1], "kqhb", strict=False))
    if term.kind == "bool" and aligned and axes.broadcasts(axes.shape_of(name)):
        return Dense(name)
    raise NotFollowed(f"{name!r} is read at [{', '.join(letters)}], which no leaf does")


def _monomials(poly: Term) -> tuple[int, dict[Term, int]]:
    """Return the number and the coefficients of a linear polynomial."""
    if poly.op != "poly":
        return 0, {poly: 1}
    if any(len(atoms) != 1 for atoms, _ in poly.args[1]):
        raise NotFollowed(f"{poly} is not linear")
    return poly.args[0], {atoms[0]: c for atoms, c in poly.args[1]}


def _row_argument(poly: Term, axes: Axes) -> Affine:
    """Return a term without q and k as a row argument."""
    number, monomials = _monomials(poly)
    total = Affine(number)
    for atom, c in monomials.items():
        if atom is axes.past:
            unit = past
        elif atom is axes.q_len:
            unit = Q
        elif atom is axes.k_len:
            unit = K
        elif atom.op == "load" and axes.reads(atom, "b"):
            unit = Row(atom.args[0])
        else:
            raise NotFollowed(f"{atom} is neither a length nor one number per row")
        for _ in range(abs(c)):
            total = total + unit if c > 0 else total - unit
    return total


def _offset(poly: Term, axes: Axes) -> Affine:
    """Return an offset of q, counted from `past` where it is no row value.

    Without a cache `past` is 0. Where the lengths are numbers, so are `past` and `Q`: an offset by a row value is then
    written against `Q`, because it counts from the end.
    """
    relative = t.sub(poly, t.ZERO if axes.past is None else axes.past)
    if t.fixed(relative) is not None:
        return past + (t.fixed(relative) or 0)
    argument, length = _row_argument(poly, axes), t.fixed(axes.q_len)
    if argument.row is not None and argument.q_len == 0 and length is not None and argument.const < 0:
        return argument - Q + length
    return argument


def _at_most_zero(poly: Term, axes: Axes) -> Mask:
    number, monomials = _monomials(poly)
    if (mask := _of_one_load(number, monomials, axes)) is not None:
        return mask
    if (mask := _chunk_order(number, monomials, axes)) is not None:
        return mask
    q, k = monomials.pop(axes.q, 0), monomials.pop(axes.k, 0)
    rest = t.sub(poly, t.add(t.mul(t.integer(q), axes.q), t.mul(t.integer(k), axes.k)))
    try:
        if (q, k) == (-1, 1):
            return Causal(_offset(t.neg(rest), axes))
        if (q, k) == (1, -1):
            return ~Causal(_offset(t.sub(rest, t.ONE), axes))
        if (q, k) == (0, 1):
            return Prefix(_row_argument(t.sub(t.ONE, rest), axes))
        if (q, k) == (0, -1):
            return ~Prefix(_row_argument(rest, axes))
    except ValueError as error:
        raise NotFollowed(str(error)) from None
    raise NotFollowed(f"{poly} <= 0 compares no query with a key")


def _zero(poly: Term, axes: Axes) -> Mask:
    number, monomials = _monomials(poly)
    loads = [atom for atom in monomials if atom.op == "load"]
    if len(loads) == 2 and len(monomials) == 2 and number == 0 and sorted(monomials.values()) == [-1, 1]:
        return _segments(loads, axes)
    if len(monomials) == 1 and loads:
        (load, c), *_ = monomials.items()
        if number % c == 0:
            return _equals(load, -number // c, axes)
        return ~Full()
    divided = [atom for atom in monomials if atom.op == "floordiv"]
    if len(divided) == 2 and len(monomials) == 2 and number == 0:
        return _chunked(divided, axes)
    q, k = monomials.pop(axes.q, 0), monomials.pop(axes.k, 0)
    rest = t.sub(poly, t.add(t.mul(t.integer(q), axes.q), t.mul(t.integer(k), axes.k)))
    if abs(k) == 1 and q == -k:
        return Window(0, 0, _offset(t.neg(rest) if k > 0 else rest, axes))
    if abs(k) == 1 and q == 0:
        place = _row_argument(t.neg(rest) if k > 0 else rest, axes)
        return Prefix(place + 1) & ~Prefix(place)
    raise NotFollowed(f"{poly} == 0 compares no query with a key")


def _equals(load: Term, value: int, axes: Axes) -> Mask:
    for leaf, letters in ((KeyPadding, "bk"), (QueryPadding, "b" + axes.query)):
        if axes.reads(load, letters):
            return ~leaf(load.args[0], value)
    if value == 0:
        return ~_loaded(load, axes)
    raise NotFollowed(f"{load.args[0]!r} at [{', '.join(axes.letters(load))}] is compared with {value}")


def _segments(loads: list[Term], axes: Axes) -> Mask:
    for key, query in (loads, loads[::-1]):
        if axes.reads(key, "bk") and axes.reads(query, "b" + axes.query) and key.args[0] == query.args[0]:
            return Segments(key.args[0])
        if axes.reads(key, "bk") and axes.reads(query, "bq"):
            return Segments(key.args[0], query.args[0])
    raise NotFollowed(f"{' and '.join(load.args[0] for load in loads)} are not compared between a query and a key")


def _chunked(divided: list[Term], axes: Axes) -> Mask:
    places, sizes = {term.args[0] for term in divided}, {t.fixed(term.args[1]) for term in divided}
    (size, *others) = sizes
    if places == {axes.p, axes.k} and not others and size is not None:
        return Chunked(size)
    raise NotFollowed(f"{divided} are no chunks of positions")


def _chunk_order(number: int, monomials: dict[Term, int], axes: Axes) -> Mask | None:
    """Return `k // c <= p // c` and its like, else None."""
    divided = [atom for atom in monomials if atom.op == "floordiv"]
    if len(divided) != 2 or len(monomials) != 2 or sorted(monomials.values()) != [-1, 1]:
        return None
    same = _chunked(divided, axes)
    before = next(atom for atom, c in monomials.items() if c > 0).args[0] is axes.k
    ordered = Causal() if before else ~Causal(past - 1)
    if number == 0:
        return ordered | same
    if number == 1:
        return ordered & ~same
    raise NotFollowed(f"chunks that are {number} apart")


def _of_one_load(number: int, monomials: dict[Term, int], axes: Axes) -> Mask | None:
    """Return a comparison of one mask element with a number, taken for 0 or 1, else None."""
    if len(monomials) != 1:
        return None
    (load, c), *_ = monomials.items()
    if load.op != "load" or not (axes.reads(load, "bk") or axes.reads(load, "b" + axes.query)):
        return None
    return _of_binary(load, number <= 0, number + c <= 0, axes)


def _of_binary(load: Term, at_zero: bool, at_one: bool, axes: Axes) -> Mask:
    """Return what is `at_zero` where an element is 0, and `at_one` where it is 1, taken for one of them."""
    if at_zero == at_one:
        raise NotFollowed(f"{load.args[0]!r} is compared with a number that doesn't tell 0 from 1")
    axes.assumes.add((load.args[0], "binary"))
    mask = _loaded(load, axes)
    return mask if at_one else ~mask


def _float_relation(term: Term, axes: Axes) -> Mask:
    """Return a comparison of one float mask element with a number, taken for 0 or 1."""
    loads = [a for a in term.args if a.op == "load"]
    if len(loads) != 1 or len(term.args) != 2 or not any(axes.reads(loads[0], at) for at in ("bk", "b" + axes.query)):
        raise NotFollowed(f"{term.op} of numbers is no comparison of positions or masks")
    at_zero, at_one = (t.substitute(term, {loads[0]: t.number(np.float32(value))}) is t.TRUE for value in (0, 1))
    if not all(a is loads[0] or a.op == "number" for a in term.args):
        raise NotFollowed(f"{term.op} of numbers is no comparison of positions or masks")
    return _of_binary(loads[0], at_zero, at_one, axes)
