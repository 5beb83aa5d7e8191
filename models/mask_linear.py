"""Integer solutions of linear inequalities: Fourier-Motzkin elimination, and the smallest solution.

Eliminating a variable is exact over the integers where its coefficient is 1 in every lower or in every upper bound
(Pugh, "The Omega test", 1991). The inequalities that masks give always have such a variable; were that to
change, `eliminate` raises instead of guessing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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
    if any(low[variable] > 1 and up[variable] < -1 for low in lower for up in upper):
        raise ArithmeticError(f"no exact elimination of variable {variable} from {system}")
    rest = {row for row in system if row[variable] == 0}
    for low in lower:
        for up in upper:
            rest.add(tuple(low[variable] * u - up[variable] * l for l, u in zip(low, up, strict=True)))  # noqa: E741
    return _tighten(rest)


def _projections(system: Sequence[Inequality], count: int) -> list[list[Inequality]] | None:
    """Return the system over the first 1, 2, ..., `count` variables; None if it has no integer solution."""
    current = _tighten(set(system))
    projections: list[list[Inequality]] = []
    for variable in reversed(range(count)):
        if current is None:
            return None
        projections.append(current)
        current = _eliminate(current, variable)
    return None if current is None else projections[::-1]


def _interval(system: list[Inequality], variable: int, values: Sequence[int]) -> tuple[float, float]:
    """Return the range of `variable` where the variables before it have `values` and none follows."""
    low, high = -math.inf, math.inf
    for row in system:
        coefficient = row[variable]
        if coefficient == 0:
            continue
        rest = row[-1] + sum(c * v for c, v in zip(row, values, strict=False))
        if coefficient > 0:
            low = max(low, -(rest // coefficient))
        else:
            high = min(high, rest // -coefficient)
    return low, high


def bounds(system: Sequence[Inequality], count: int) -> tuple[float, float] | None:
    """Return the smallest and largest value of variable 0 (infinite if unbounded), or None without a solution."""
    projections = _projections(system, count)
    return None if projections is None else _interval(projections[0], 0, ())


def smallest(system: Sequence[Inequality], count: int) -> tuple[int, ...] | None:
    """Return the lexicographically smallest integer solution, or None.

    A variable that is not bounded below takes the value nearest to 0.
    """
    projections = _projections(system, count)
    if projections is None:
        return None
    values: list[int] = []
    for variable, system in enumerate(projections):
        low, high = _interval(system, variable, values)
        values.append(int(low if low > -math.inf else min(0, high)))
    return tuple(values)
