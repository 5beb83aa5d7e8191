"""A mask at one point (b, h, q, k) as a boolean function of facts: the reading of predicates as logic.

A fact is a tuple: `("at most", form, number)`, a linear form of the variables is at most a number;
`("chunk", size)`, query and key are in one chunk; `("equal", load, load or number)`; and `("true", *load)`. A formula
is a fact, a bool, or `("not" | "and" | "or", formula, ...)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .mask_rows import Affine

__all__ = [
    "DIAGONAL",
    "KEY",
    "K_LEN",
    "PAST",
    "QUERY",
    "Q_LEN",
    "TOTAL",
    "Facts",
    "Form",
    "Linear",
    "facts_in",
    "of_kind",
    "undecided",
    "value_of",
]

# Variables of the linear systems, in the order in which a witness is made small; then row values by name.
TOTAL, PAST, Q_LEN, K_LEN, QUERY, KEY = range(6)


class Linear:
    """An integer that is linear in the variables: a coefficient for each, and a number."""

    def __init__(self, terms: dict[int | str, int], const: int = 0) -> None:
        self.terms = {variable: c for variable, c in terms.items() if c}
        self.const = const

    def __add__(self, other: Linear | int) -> Linear:
        if isinstance(other, int):
            return Linear(self.terms, self.const + other)
        terms = dict(self.terms)
        for variable, c in other.terms.items():
            terms[variable] = terms.get(variable, 0) + c
        return Linear(terms, self.const + other.const)

    __radd__ = __add__

    def __neg__(self) -> Linear:
        return Linear({variable: -c for variable, c in self.terms.items()}, -self.const)

    def __sub__(self, other: Linear | int) -> Linear:
        return self + -other

    def __le__(self, other: Linear | int) -> Formula:
        return _at_most_zero(self - other)

    def __lt__(self, other: Linear | int) -> Formula:
        return self + 1 <= other

    def __floordiv__(self, size: int) -> Chunk:
        return Chunk(size)

    @property
    def form(self) -> Form:
        return tuple(sorted(self.terms.items(), key=lambda item: (isinstance(item[0], str), item[0])))


Form = tuple[tuple[Any, int], ...]


@dataclass(frozen=True, eq=False)
class Chunk:
    """`p // size` or `k // size`; comparing the two is the fact `("chunk", size)`."""

    size: int

    def __eq__(self, other: object) -> Any:
        return Formula(("chunk", self.size))


@dataclass(frozen=True, eq=False)
class Load:
    """The integer or boolean that a tensor holds at b and the named positions."""

    name: str
    axes: str

    def __eq__(self, other: object) -> Any:
        operands = sorted((_term(self), _term(other)), key=repr)
        return Formula(True) if operands[0] == operands[1] else Formula(("equal", *operands))

    def __ne__(self, other: object) -> Any:
        return ~(self == other)


def _term(value: object) -> Any:
    return (value.name, value.axes) if isinstance(value, Load) else value


@dataclass(frozen=True, eq=False)
class Formula:
    """A boolean function of facts: a fact, a bool, or ("not" | "and" | "or", ...) of such."""

    node: Any

    def __and__(self, other: Formula) -> Formula:
        return Formula(("and", self.node, other.node))

    def __or__(self, other: Formula) -> Formula:
        return Formula(("or", self.node, other.node))

    def __invert__(self) -> Formula:
        return Formula(("not", self.node))


def _at_most_zero(linear: Linear) -> Formula:
    """Return the fact `linear <= 0`, written with the key's coefficient (else the first) positive."""
    form = linear.form
    if not form:
        return Formula(linear.const <= 0)
    leading = linear.terms.get(KEY) or form[0][1]
    if leading < 0:
        return Formula(("not", ("at most", (-linear).form, linear.const - 1)))
    return Formula(("at most", form, -linear.const))


class Facts:
    """Points at which predicates evaluate to formulas (see mask_leaves.Points)."""

    q = Linear({QUERY: 1})
    k = Linear({KEY: 1})
    p = Linear({QUERY: 1, PAST: 1})
    true = Formula(True)

    def load(self, name: str, axes: str) -> Any:
        return Formula(("true", name, axes)) if axes == "bhqk" else Load(name, axes)

    def row(self, affine: Affine) -> Linear:
        terms: dict[Any, int] = {PAST: affine.past, Q_LEN: affine.q_len, K_LEN: affine.k_len}
        return Linear(terms | dict(affine.rows), affine.const)


def facts_in(node: Any) -> Iterator[Any]:
    if isinstance(node, bool):
        return
    if node[0] in ("not", "and", "or"):
        for part in node[1:]:
            yield from facts_in(part)
    else:
        yield node


def value_of(node: Any, known: dict[Any, bool]) -> bool | None:
    """Evaluate a formula where only some facts are known; None if they don't decide it."""
    if isinstance(node, bool):
        return node
    head = node[0]
    if head == "not":
        value = value_of(node[1], known)
        return None if value is None else not value
    if head in ("and", "or"):
        decisive, values = head == "or", [value_of(part, known) for part in node[1:]]
        if decisive in values:
            return decisive
        return None if None in values else not decisive
    return known.get(node)


def undecided(node: Any, known: dict[Any, bool]) -> Any:
    """Return a fact that the value of the formula still hangs on."""
    if node[0] in ("not", "and", "or"):
        return undecided(next(part for part in node[1:] if value_of(part, known) is None), known)
    return node


def of_kind(known: dict[Any, bool], kind: str) -> list[tuple[Any, bool]]:
    """Return the known facts of one kind, with their values."""
    return [(fact, value) for fact, value in known.items() if fact[0] == kind]


# 0 where query and key are the same position.
DIAGONAL = (Facts.k - Facts.p).form
