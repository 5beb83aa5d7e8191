"""Decide whether a mask can attend: equality, implication and the smallest witness.

At one point (b, h, q, k) a mask is a boolean function of three kinds of facts, and each kind has an exact procedure:

- linear comparisons, `k - q - past <= 3` or `k - length[b] <= -1`: those of one linear form cut its values into
  intervals, and a choice of one interval per form is a system of linear inequalities (mask_linear);
- chunks, `p // c == k // c`: between two neighbouring chunk boundaries everything that depends on p mod c is
  constant, so p runs over intervals, never over values;
- loads, `name[b, k] == 3` or `name[b, p] == name[b, k]`: equalities of unknown integers, by union-find. The two reads
  of one tensor are one load on the diagonal k = p.
"""

from __future__ import annotations

import functools
import itertools
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .mask_leaves import Expr, evaluate, tensors_of
from .mask_linear import Inequality, bounds, smallest
from .mask_rows import Affine

__all__ = ["Sizes", "Witness", "fingerprint", "reach", "satisfiable", "witness"]


class Sizes(NamedTuple):
    """Lengths of a mask: `q_len` queries and `k_len` keys, the first `past` of them from a cache."""

    q_len: int
    k_len: int
    past: int


class Witness(NamedTuple):
    """A point where two masks differ: `a.dense(*sizes, **tensors)[b, h, q, k] != b.dense(...)[b, h, q, k]`."""

    sizes: Sizes
    b: int
    h: int
    q: int
    k: int
    tensors: dict[str, np.ndarray]


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


class _Facts:
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


def _facts_in(node: Any) -> Iterator[Any]:
    if isinstance(node, bool):
        return
    if node[0] in ("not", "and", "or"):
        for part in node[1:]:
            yield from _facts_in(part)
    else:
        yield node


def _value(node: Any, known: dict[Any, bool]) -> bool | None:
    """Evaluate a formula where only some facts are known; None if they don't decide it."""
    if isinstance(node, bool):
        return node
    head = node[0]
    if head == "not":
        value = _value(node[1], known)
        return None if value is None else not value
    if head in ("and", "or"):
        decisive, values = head == "or", [_value(part, known) for part in node[1:]]
        if decisive in values:
            return decisive
        return None if None in values else not decisive
    return known.get(node)


def _undecided(node: Any, known: dict[Any, bool]) -> Any:
    """Return a fact that the value of the formula still hangs on."""
    if node[0] in ("not", "and", "or"):
        return _undecided(next(part for part in node[1:] if _value(part, known) is None), known)
    return node


_DIAGONAL = (_Facts.k - _Facts.p).form


class _Problem:
    """One formula, its facts sorted by kind, and the linear rules that always hold."""

    def __init__(self, expr: Expr, self_attention: bool) -> None:
        self.expr = expr
        self.formula = evaluate(expr, _Facts()).node
        facts = list(dict.fromkeys(_facts_in(self.formula)))
        self.chunks = [fact for fact in facts if fact[0] == "chunk"]
        self.reads = {name: spec.reads for name, spec in tensors_of(expr).items() if spec.rank == 2}
        # form -> the values after which it is cut
        self.cuts: dict[Form, set[int]] = {}
        for form, value in [fact[1:] for fact in facts if fact[0] == "at most"]:
            self.cuts.setdefault(form, set()).add(value)
        # A tensor that is read at p and at k gives one load where they are the same position.
        self.tied = any({"bk", "bp"} <= reads for reads in self.reads.values())
        if self.tied:
            self.cuts.setdefault(_DIAGONAL, set()).update((-1, 0))
        rows = sorted({variable for form in self.cuts for variable, _ in form if isinstance(variable, str)})
        self.variables: list[int | str] = [*range(6), *rows]
        self.rules = self._rules(self_attention)

    def inequality(self, linear: Linear) -> Inequality:
        """Return `linear >= 0` as coefficients."""
        return (*(linear.terms.get(variable, 0) for variable in self.variables), linear.const)

    def _rules(self, self_attention: bool) -> list[Inequality]:
        total, past, q_len, k_len = (Linear({v: 1}) for v in (TOTAL, PAST, Q_LEN, K_LEN))
        size = q_len + k_len + past
        self.totals = [self.inequality(total - size), self.inequality(size - total)]
        rules = [past, _Facts.q, _Facts.k, q_len - _Facts.q - 1, k_len - _Facts.k - 1]
        if any("bp" in reads for reads in self.reads.values()):
            rules.append(k_len - q_len - past)
        if self_attention:
            rules += [k_len - q_len - past, q_len + past - k_len]
        return [self.inequality(rule) for rule in rules]

    def classes(self) -> Iterator[tuple[dict[Any, bool], list[Inequality]]]:
        """Yield each choice of an interval per linear form and a value per chunk that may make the formula true."""
        yield from self._choose(list(self.cuts.items()), {}, self.rules)

    def _choose(
        self, forms: list[tuple[Form, set[int]]], known: dict[Any, bool], system: list[Inequality]
    ) -> Iterator[tuple[dict[Any, bool], list[Inequality]]]:
        if _value(self.formula, known) is False:
            return
        if not forms:
            for values in itertools.product((True, False), repeat=len(self.chunks)):
                chosen = known | dict(zip(self.chunks, values, strict=True))
                if _value(self.formula, chosen) is not False:
                    yield chosen, system
            return
        (form, cut_after), *rest = forms
        cuts = sorted(cut_after)
        linear = Linear(dict(form))
        for low, high in itertools.pairwise([None, *cuts, None]):
            narrowed = list(system)
            if low is not None:
                narrowed.append(self.inequality(linear - (low + 1)))
            if high is not None:
                narrowed.append(self.inequality(-linear + high))
            if bounds(narrowed, TOTAL) is None:
                continue
            facts = {("at most", form, value): high is not None and high <= value for value in cuts}
            yield from self._choose(rest, known | facts, narrowed)

    def loads(self, known: dict[Any, bool]) -> dict[Any, int] | None:
        """Return values of the loads that make the formula true in this class, or None."""
        value = _value(self.formula, known)
        if value is False:
            return None
        on_diagonal = self.tied and known[("at most", _DIAGONAL, 0)] and not known[("at most", _DIAGONAL, -1)]
        values = _consistent(known, {"p": "k"} if on_diagonal else {})
        if value or values is None:
            return values
        fact = _undecided(self.formula, known)
        for guess in (True, False):
            found = self.loads({**known, fact: guess})
            if found is not None:
                return found
        return None


def _consistent(known: dict[Any, bool], same: dict[str, str]) -> dict[Any, int] | None:
    """Return integers for the loads that agree with the known equalities, or None if there are none."""

    def key(term: Any) -> Any:
        return (term[0], *(same.get(axis, axis) for axis in term[1])) if isinstance(term, tuple) else term

    parent: dict[Any, Any] = {}

    def find(term: Any) -> Any:
        while parent.setdefault(term, term) != term:
            term = parent[term]
        return term

    equalities = [(key(a), key(b), value) for (kind, a, b), value in _of_kind(known, "equal")]
    truths = {key(fact[1:]): int(value) for fact, value in _of_kind(known, "true")}
    for a, b, value in equalities:
        if value and find(a) != find(b):
            # A number stands for its class, so that two numbers in one class show.
            low, high = sorted((find(a), find(b)), key=lambda term: not isinstance(term, tuple))
            if not isinstance(low, tuple):
                return None
            parent[low] = high
    if any(not value and find(a) == find(b) for a, b, value in equalities):
        return None
    numbers = {find(term) for term in list(parent) if not isinstance(term, tuple)}
    fresh = (n for n in itertools.chain((1, 0), itertools.count(2)) if n not in numbers)
    values = {root: next(fresh) if isinstance(root, tuple) else root for root in dict.fromkeys(map(find, list(parent)))}
    return truths | {term: values[find(term)] for term in list(parent) if isinstance(term, tuple)}


def _of_kind(known: dict[Any, bool], kind: str) -> list[tuple[Any, bool]]:
    return [(fact, value) for fact, value in known.items() if fact[0] == kind]


# More chunk boundaries than this in one period are too many to walk (sizes of which no one divides another).
MOST_CELLS = 1_000_000


class _Chunks:
    """The chunk facts of one class over its linear system: where p and k may lie."""

    def __init__(self, problem: _Problem, known: dict[Any, bool], system: list[Inequality]) -> None:
        self.problem, self.system = problem, system
        self.same = [size for (_, size), value in _of_kind(known, "chunk") if value]
        self.other = [size for (_, size), value in _of_kind(known, "chunk") if not value]
        self.sizes = self.same + self.other
        self.distances = self._range(_Facts.k - _Facts.p)
        if self.same:
            nearest, farthest = self.distances
            self.distances = max(nearest, 1 - min(self.same)), min(farthest, min(self.same) - 1)

    def _range(self, linear: Linear) -> tuple[float, float]:
        """Return the range of `linear` over the system, which has a solution."""
        rows: list[Inequality] = [(0, *row) for row in self.system]
        rows += [(1, *self.problem.inequality(-linear)), (-1, *self.problem.inequality(linear))]
        return bounds(rows, 0) or (0, -1)

    def _boxes(self, start: int, stop: float) -> Iterator[tuple[int, int, float, float]]:
        """Yield the boxes `first <= p <= last, low <= k <= high` in which the chunk facts hold."""
        first, (nearest, farthest) = start, self.distances
        # A boundary of a larger chunk is one of a smaller chunk that divides it.
        if nearest > farthest or any(large % small == 0 for small in self.same for large in self.other):
            return
        for _ in range(MOST_CELLS):
            if first >= stop:
                return
            ends = {size: (first // size + 1) * size for size in self.sizes}
            after = min(ends.values())
            low = max((ends[size] - size for size in self.same), default=-math.inf)
            high = min((ends[size] - 1 for size in self.same), default=math.inf)
            ranges = [(low, high)]
            if self.other:
                left, right = (
                    min(ends[size] - size for size in self.other),
                    max(ends[size] for size in self.other),
                )
                ranges = [(low, min(high, left - 1)), (max(low, right), high)]
            for low, high in ranges:
                if low <= high and low - (after - 1) <= farthest and high - first >= nearest:
                    yield first, after - 1, low, high
            first = after
        raise ValueError(
            f"cannot decide a mask with chunks of {sorted(self.sizes)}: they meet only every "
            f"{math.lcm(*self.sizes)} positions; use sizes that divide each other"
        )

    def _repeats(self) -> bool:
        """Return whether each solution can be moved along the diagonal without end."""
        step: list[Inequality] = [(*row[:-1], 0) for row in self.system]
        step += [self.problem.inequality(side) for one in (_Facts.k - 1, _Facts.p - 1) for side in (one, -one)]
        return bounds(step, TOTAL) is not None

    def _last_query(self) -> float:
        """Return a position p after which nothing new is found, where solutions don't repeat."""
        (first, last), (_, last_key) = self._range(_Facts.p), self._range(_Facts.k)
        return min(last, max(first, last_key) + 2 * max(self.sizes))

    def possible(self) -> bool:
        """Return whether the class has a point."""
        if not self.sizes:
            return True
        if self._repeats():
            return next(self._boxes(0, math.lcm(*self.sizes)), None) is not None
        return self.smallest() is not None

    def smallest(self, better_than: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
        """Return the smallest solution that is smaller than `better_than`, or None; see `_Problem.variables`."""
        count, system = len(self.problem.variables), self.system + self.problem.totals
        if not self.sizes:
            return _smaller(better_than, smallest(system, count))
        best, found = better_than, None
        stop = math.inf if self._repeats() else self._last_query() + 1
        for first, last, low, high in self._boxes(int(self._range(_Facts.p)[0]), stop):
            if best is not None and first + 2 > best[TOTAL]:
                break
            sides = [_Facts.p - first, -_Facts.p + last]
            sides += [_Facts.k - int(low)] if low > -math.inf else []
            sides += [-_Facts.k + int(high)] if high < math.inf else []
            box = [self.problem.inequality(side) for side in sides]
            if bounds(self.system + box, KEY) is None:
                continue
            candidate = _smaller(best, smallest(system + box, count))
            if candidate is not None:
                best = found = candidate
        return found


def _smaller(best: tuple[int, ...] | None, candidate: tuple[int, ...]) -> tuple[int, ...] | None:
    return candidate if best is None or candidate < best else None


@functools.lru_cache(maxsize=65536)
def satisfiable(expr: Expr) -> bool:
    """Return whether there are sizes, indices and tensors at which the expression attends."""
    problem = _Problem(expr, self_attention=False)
    return any(
        problem.loads(known) is not None and _Chunks(problem, known, system).possible()
        for known, system in problem.classes()
    )


def witness(expr: Expr, self_attention: bool = False) -> Witness | None:
    """Return the smallest point at which the expression attends, or None.

    Smallest means the least q_len + k_len + past; then the least past, q_len, k_len, q and k. `self_attention`
    asks for k_len == q_len + past.
    """
    if not satisfiable(expr):
        return None
    problem = _Problem(expr, self_attention)
    best: tuple[int, ...] | None = None
    loads: dict[Any, int] = {}
    for known, system in problem.classes():
        values = problem.loads(known)
        if values is not None:
            chunks = _Chunks(problem, known, system)
            found = chunks.smallest(best) if chunks.possible() else None
            if found is not None:
                best, loads = found, values
    return None if best is None else _materialize(problem, best, loads)


def reach(expr: Expr) -> int:
    """Return a distance between query and key beyond which every bound of the expression lies."""
    problem = _Problem(expr, self_attention=False)
    cuts = [abs(value) for values in problem.cuts.values() for value in values]
    return sum(cuts) + sum(size for _, size in problem.chunks) + 1


def _materialize(problem: _Problem, solution: tuple[int, ...], loads: dict[Any, int]) -> Witness:
    """Write a solution down as tensors of batch 1; what no fact is about is 1."""
    at = dict(zip(problem.variables, solution, strict=True))
    position = {"b": 0, "h": 0, "q": at[QUERY], "k": at[KEY], "p": at[QUERY] + at[PAST]}
    length = {"b": 1, "h": 1, "q": at[Q_LEN], "k": at[K_LEN], "p": at[K_LEN]}
    tensors = {}
    for name, spec in tensors_of(problem.expr).items():
        dtype = bool if spec.dims == "bhqk" else np.int64
        tensors[name] = np.full([length[axis] for axis in spec.dims], at.get(name, 1), dtype)
    for (name, *axes), value in loads.items():
        tensors[name][tuple(position[axis] for axis in axes)] = value
    return Witness(Sizes(at[Q_LEN], at[K_LEN], at[PAST]), 0, 0, at[QUERY], at[KEY], tensors)


class _Samples:
    """Fixed points with tensors made from their names: equal masks evaluate to equal bits (see Points)."""

    def __init__(self, count: int = 128) -> None:
        random = np.random.default_rng(20)
        span = 2 ** random.integers(0, 14, size=(5, count))
        self.q, self.k, self.past, before_k, after_q = random.integers(0, span)
        near = random.random(count) < 0.5
        self.k = np.where(near, np.maximum(self.q + self.past + before_k % 9 - 4, 0), self.k)
        self.p = self.q + self.past
        self.q_len = self.q + 1 + after_q
        self.k_len = np.maximum(self.k + 1, self.q_len + self.past) + before_k
        self.true = np.ones(count, bool)
        self.zero = np.zeros(count, np.int64)

    def load(self, name: str, axes: str) -> np.ndarray:
        mixed = self.zero + zlib.crc32(name.encode("utf-8", "surrogatepass"))
        for axis in axes[1:].replace("h", ""):
            mixed = (mixed * 48271 + getattr(self, axis) + 11) % (2**31 - 1)
        mixed = mixed * 48271 % (2**31 - 1) // 64
        return mixed % 2 == 1 if axes == "bhqk" else mixed % 4

    def row(self, affine: Affine) -> np.ndarray:
        value = self.zero + affine.const + affine.past * self.past
        value = value + affine.q_len * self.q_len + affine.k_len * self.k_len
        if affine.row is not None:
            value = value + zlib.crc32(affine.row.encode("utf-8", "surrogatepass")) % 64
        return value


@functools.lru_cache(maxsize=4096)
def fingerprint(expr: Expr) -> int:
    """Return a hash that is the same for all expressions that mean the same."""
    return int.from_bytes(np.packbits(evaluate(expr, _SAMPLES) & _SAMPLES.true).tobytes(), "big")


_SAMPLES = _Samples()
