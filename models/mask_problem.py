"""One formula to satisfy: its classes of linear and chunk facts, and loads that make it true in a class.

Comparisons of one linear form cut its values into intervals, and a choice of one interval per form is a system of
linear inequalities. Loads are unknown integers, of which some are equal: union-find. The two reads of one tensor, at p
and at k, are one load on the diagonal k = p.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from .mask_facts import (
    DIAGONAL,
    K_LEN,
    PAST,
    Q_LEN,
    TOTAL,
    Facts,
    Form,
    Linear,
    facts_in,
    of_kind,
    undecided,
    value_of,
)
from .mask_leaves import Expr, evaluate, tensors_of
from .mask_linear import Inequality, bounds

__all__ = ["Problem"]


class Problem:
    """One formula, its facts sorted by kind, and the linear rules that always hold."""

    def __init__(self, expr: Expr, self_attention: bool) -> None:
        self.expr = expr
        self.formula = evaluate(expr, Facts()).node
        facts = list(dict.fromkeys(facts_in(self.formula)))
        self.chunks = [fact for fact in facts if fact[0] == "chunk"]
        self.reads = {name: spec.reads for name, spec in tensors_of(expr).items() if spec.rank == 2}
        # form -> the values after which it is cut
        self.cuts: dict[Form, set[int]] = {}
        for form, value in [fact[1:] for fact in facts if fact[0] == "at most"]:
            self.cuts.setdefault(form, set()).add(value)
        # A tensor that is read at p and at k gives one load where they are the same position.
        self.tied = any({"bk", "bp"} <= reads for reads in self.reads.values())
        if self.tied:
            self.cuts.setdefault(DIAGONAL, set()).update((-1, 0))
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
        rules = [past, Facts.q, Facts.k, q_len - Facts.q - 1, k_len - Facts.k - 1]
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
        if value_of(self.formula, known) is False:
            return
        if not forms:
            for values in itertools.product((True, False), repeat=len(self.chunks)):
                chosen = known | dict(zip(self.chunks, values, strict=True))
                if value_of(self.formula, chosen) is not False:
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
        value = value_of(self.formula, known)
        if value is False:
            return None
        on_diagonal = self.tied and known[("at most", DIAGONAL, 0)] and not known[("at most", DIAGONAL, -1)]
        values = _consistent(known, {"p": "k"} if on_diagonal else {})
        if value or values is None:
            return values
        fact = undecided(self.formula, known)
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

    equalities = [(key(a), key(b), value) for (kind, a, b), value in of_kind(known, "equal")]
    truths = {key(fact[1:]): int(value) for fact, value in of_kind(known, "true")}
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
