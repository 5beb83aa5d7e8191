"""What is added to attention scores: split into masks, by their fill, and biases."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import terms as t
from .algebra import Axes
from .terms import Term
from .values import Faulty

__all__ = ["Added", "is_fill", "split_added"]

# A score is far above this: what is filled with less has no weight.
LARGEST_FILL = -1e4
# Tensors of ones and zeros that arithmetic mixes in one term: more are not tried.
MOST_MASKS = 3


@dataclass
class Added:
    """A term that is added to scores.

    Attributes
    ----------
    attend : list of Term
        Booleans that all must hold for a key to be attended.
    fills : list of float
        What masked scores get.
    bias : list of Term
        What is added to attended scores.
    """

    attend: list[Term] = field(default_factory=list)
    fills: list[float] = field(default_factory=list)
    bias: list[Term] = field(default_factory=list)


def is_fill(term: Term) -> bool:
    """Return whether a constant is so low that a score filled with it has no weight."""
    return term.op == "number" and not math.isnan(float(term.args[0])) and float(term.args[0]) <= LARGEST_FILL


def split_added(term: Term, axes: Axes) -> Added:
    """Split a float term into masks and biases.

    Raises
    ------
    Faulty
        If it holds a NaN, or a number that is neither 0 nor low enough to mask.
    """
    added = Added()
    _split(term, axes, added)
    return added


def _split(term: Term, axes: Axes, added: Added) -> None:
    if term.op == "Add":
        for part in term.args:
            _split(part, axes, added)
        return
    if term.op == "choose":
        condition, a, b = term.args
        for kept, filled, attend in ((a, b, condition), (b, a, t.negate(condition))):
            if is_fill(filled) and not is_fill(kept):
                added.attend.append(attend)
                added.fills.append(float(filled.args[0]))
                _split(kept, axes, added)
                return
    chosen = term if t.is_choice(term) else _by_ones_and_zeros(term, axes)
    if chosen is None:
        added.bias.append(term)
        return
    _split_choice(chosen, term, added)


def _split_choice(chosen: Term, term: Term, added: Added) -> None:
    leaves = dict(_leaves(chosen, t.TRUE))
    values = [float(leaf.args[0]) if leaf.op == "number" else float(t.fixed(t.to_int(leaf)) or 0) for leaf in leaves]
    if any(map(math.isnan, values)):
        raise Faulty("nan", "its masked and its attended scores become NaN: 0 times an infinite fill")
    low = [value <= LARGEST_FILL for value in values]
    if any(low):
        rest = [value for value, masks in zip(values, low, strict=True) if not masks]
        if any(value != 0 for value in rest) and len(set(rest)) > 1:
            added.bias.append(term)
        attend = [condition for condition, masks in zip(leaves.values(), low, strict=True) if not masks]
        added.attend.append(t.either(*attend))
        added.fills += [value for value, masks in zip(values, low, strict=True) if masks]
    elif any(value != values[0] for value in values):
        weakest = min(values)
        if weakest < 0 and max(values) == 0:
            raise Faulty("weak", f"a fill of {weakest:g} is too small to mask: its keys keep weight")
        added.bias.append(term)
    # One number for every key changes no softmax.


def _leaves(chosen: Term, condition: Term) -> list[tuple[Term, Term]]:
    """Return each constant of a tree of choices with the condition under which it is chosen."""
    found: dict[Term, Term] = {}

    def visit(term: Term, holds: Term) -> None:
        if term.op == "choose":
            visit(term.args[1], t.both(holds, term.args[0]))
            visit(term.args[2], t.both(holds, t.negate(term.args[0])))
        elif holds is not t.FALSE:
            found[term] = t.either(found.get(term, t.FALSE), holds)

    visit(chosen, condition)
    return list(found.items())


def _by_ones_and_zeros(term: Term, axes: Axes) -> Term | None:
    """Return the term for each value of the masks in it, if they can be taken for ones and zeros; else None."""
    masks = [
        atom
        for atom in t.atoms_of(term)
        if atom.op == "load"
        and atom.kind in ("int", "float")
        and any(axes.reads(atom, at) for at in ("bk", "b" + axes.query, "bqk"))
    ]
    if not masks or len(masks) > MOST_MASKS:
        return None
    results: dict[tuple[int, ...], Term] = {}
    for values in itertools.product((0, 1), repeat=len(masks)):
        numbers = {
            mask: t.integer(value) if mask.kind == "int" else t.number(_float_like(term)(value))
            for mask, value in zip(masks, values, strict=True)
        }
        results[values] = t.substitute(term, numbers)
    if not all(map(_ends_in_nothing_or_a_fill, results.values())):
        return None
    axes.assumes.update((mask.args[0], "binary") for mask in masks)
    chosen = results[(0,) * len(masks)]
    for values, result in results.items():
        conditions = [
            is_one if value else t.negate(is_one)
            for value, is_one in zip(values, (t.to_bool(mask_as_int(mask)) for mask in masks), strict=True)
        ]
        chosen = t.choose(t.both(*conditions), result, chosen)
    return chosen


def _ends_in_nothing_or_a_fill(result: Term) -> bool:
    """Return whether a term is what arithmetic makes of a mask of ones and zeros; NaN is a fill that went wrong."""
    return t.is_choice(result) and all(
        leaf.op == "number" and (float(leaf.args[0]) == 0 or is_fill(leaf) or math.isnan(float(leaf.args[0])))
        for leaf, _ in _leaves(result, t.TRUE)
    )


def mask_as_int(mask: Term) -> Term:
    """Return a mask element as an integer, whatever its type."""
    return t.load("int", *mask.args)


def _float_like(term: Term) -> Any:
    """Return the numpy type of the numbers in a term."""
    return next((type(a.args[0]) for a in t.atoms_of(term) if a.op == "number"), np.float32)
