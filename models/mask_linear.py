"""Integer solutions of linear inequalities: Fourier-Motzkin elimination, and the smallest solution.

Eliminating a variable is exact over the integers where its coefficient is 1 in every lower or in every upper bound
(Pugh, "The Omega test", 1991). The inequalities that masks give always have such a variable; without one, `bounds`
raises instead of guessing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

__all__ = ["Inequality", "bounds", "smallest"]

# (c_0, ..., c_n-1, c) stands for c_0*x_0 + ... + c_n-1*x_n-1 + c >= 0.
Inequality = tuple[int, ...]


def _tighten(system: set[Inequality]) -> list[Inequality] | None:
    """Divide by common factors and keep the strictest of parallel inequalities; None if one is never true."""
    strictest: dict[tuple[int, ...], int] = {}
    for *coefficients, const in system:
        divisor = math.gcd(*coefficients)
        if divisor == 0:
            if const < 0:
                return None
            continue
        key = tuple(c // divisor for c in coefficients)
        const //= divisor
        strictest[key] = min(const, strictest.get(key, const))
    return [(*key, const) for key, const in strictest.items()]


def _eliminate(system: list[Inequality], variable: int) -> list[Inequality] | None:
    """Project `variable` away; None if nothing is left of the solutions."""
    lower = [row for row in system if row[variable] > 0]
    upper = [row for row in system if row[variable] < 0]
    rest = {row for row in system if row[variable] == 0}
    for low in lower:
        for up in upper:
            rest.add(tuple(low[variable] * u - up[variable] * v for u, v in zip(up, low, strict=True)))
    return _tighten(rest)


def _cost(system: list[Inequality], variable: int) -> float:
    """Return how many inequalities replace those of `variable`; infinite if that would not be exact."""
    lower = [row[variable] for row in system if row[variable] > 0]
    upper = [-row[variable] for row in system if row[variable] < 0]
    exact = max(lower, default=1) == 1 or max(upper, default=1) == 1
    return len(lower) * len(upper) - len(lower) - len(upper) if exact else math.inf


def bounds(system: Iterable[Inequality], target: int, *, exact: bool = True) -> tuple[float, float] | None:
    """Return the smallest and largest value of variable `target` (infinite if unbounded), or None without a solution.

    Parameters
    ----------
    exact : bool
        If False, the range may be too wide (and None is still certain).

    Raises
    ------
    ArithmeticError
        If `exact` and the other variables can't be eliminated exactly.
    """
    current = _tighten(set(system))
    variables = {v for row in current or () for v, c in enumerate(row[:-1]) if c} - {target}
    while current is not None and variables:
        cost, variable = min((_cost(current, v), v) for v in variables)
        if exact and cost == math.inf:
            raise ArithmeticError(f"no exact elimination of a variable from {current}")
        current = _eliminate(current, variable)
        variables.remove(variable)
    if current is None:
        return None
    low = max((-(row[-1] // row[target]) for row in current if row[target] > 0), default=-math.inf)
    high = min((row[-1] // -row[target] for row in current if row[target] < 0), default=math.inf)
    return (low, high) if low <= high else None


def smallest(system: Iterable[Inequality], count: int) -> tuple[int, ...]:
    """Return the lexicographically smallest of the integer solutions of a system that has one.

    A variable that is not bounded below takes the value nearest to 0. Each choice narrows the next variable's range;
    where a range was too wide, the search goes on with the next value.
    """
    found = _search(list(system), (), count)
    if found is None:
        raise ArithmeticError(f"no integer solution of {system}")
    return found


def _search(system: list[Inequality], chosen: tuple[int, ...], count: int) -> tuple[int, ...] | None:
    variable = len(chosen)
    if variable == count:
        return chosen
    found = bounds(system, variable, exact=False)
    if found is None:
        return None
    low, high = found
    start = int(low if low > -math.inf else min(0, high))
    for value in itertools.count(start):
        if value > high:
            return None
        fixed = [(*row[:variable], 0, *row[variable + 1 : -1], row[-1] + row[variable] * value) for row in system]
        solution = _search(fixed, (*chosen, value), count)
        if solution is not None:
            return solution
    return None
