"""A mask as an expression of the algebra, in which what has no leaf is `Dense` of a value in the graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from ...models.masks import Dense, Full, Mask
from . import rules
from . import terms as t
from .algebra import Axes, to_mask
from .interpreter import Interpreter
from .terms import Term
from .values import NotFollowed, kind_of

__all__ = ["named_mask"]

# Values above a mask that are looked at for one that holds a part of it.
MOST_ANCESTORS = 200


def named_mask(x: Interpreter, parts: Sequence[tuple[Term, ir.Value | None]], axes: Axes) -> Mask:
    """Return the conjunction of terms as a mask, each with the value of the graph that it was read from.

    Raises
    ------
    NotFollowed
        If a part has no leaf, and no boolean value of the graph that broadcasts to [B, H, Q, K] holds it.
    """
    whole = t.both(*(term for term, _ in parts))
    try:
        return to_mask(whole, axes)
    except NotFollowed:
        pass
    mask = Full()
    for term, value in parts:
        mask = mask & _mask(x, term, value, axes)
    return mask


def _mask(x: Interpreter, term: Term, value: ir.Value | None, axes: Axes) -> Mask:
    try:
        return to_mask(term, axes)
    except NotFollowed as error:
        reason = error
    if term.op in ("and", "or"):
        try:
            masks = [_mask(x, part, value, axes) for part in term.args]
        except NotFollowed as error:
            reason = error
        else:
            joined = masks[0]
            for mask in masks[1:]:
                joined = joined & mask if term.op == "and" else joined | mask
            return joined
    if value is not None:
        for ancestor in _ancestors(value):
            found = _holds(x, ancestor, axes)
            if found is term or (found is not None and t.negate(found) is term):
                name = str(ancestor.name)
                x.by_name[name] = ancestor
                return Dense(name) if found is term else ~Dense(name)
    raise reason


def _holds(x: Interpreter, value: ir.Value, axes: Axes) -> Term | None:
    """Return a boolean value's element at (b, h, q, k), if it broadcasts to that."""
    if value.name is None or kind_of(value) != "bool":
        return None
    try:
        shape = x.shape(value)
        if not axes.broadcasts(shape):
            return None
        return x.term(value, rules.broadcast_index(shape, (axes.b, axes.h, axes.q, axes.k)))
    except NotFollowed:
        return None


def _ancestors(value: ir.Value) -> Iterator[ir.Value]:
    """Yield a value and what it is computed from, nearest first."""
    waiting, seen = [value], {value}
    for current in waiting:
        yield current
        node = current.producer()
        if node is None or len(waiting) > MOST_ANCESTORS:
            continue
        for operand in node.inputs:
            if operand is not None and operand not in seen:
                seen.add(operand)
                waiting.append(operand)
