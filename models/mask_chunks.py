"""Chunk facts together with a linear system: where query and key may lie.

Between two neighbouring chunk boundaries everything that depends on p mod c is constant, so p runs over intervals,
never over values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from .mask_facts import KEY, TOTAL, Facts, Linear, of_kind
from .mask_linear import Inequality, bounds, smallest
from .mask_problem import Problem

__all__ = ["Chunks"]

# More chunk boundaries than this in one period are too many to walk (sizes of which no one divides another).
MOST_CELLS = 1_000_000


class Chunks:
    """The chunk facts of one class over its linear system: where p and k may lie."""

    def __init__(self, problem: Problem, known: dict[Any, bool], system: list[Inequality]) -> None:
        self.problem, self.system = problem, system
        self.same = [size for (_, size), value in of_kind(known, "chunk") if value]
        self.other = [size for (_, size), value in of_kind(known, "chunk") if not value]
        self.sizes = self.same + self.other
        self.distances = self._range(Facts.k - Facts.p)
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
        step += [self.problem.inequality(side) for one in (Facts.k - 1, Facts.p - 1) for side in (one, -one)]
        return bounds(step, TOTAL) is not None

    def _last_query(self) -> float:
        """Return a position p after which nothing new is found, where solutions don't repeat."""
        (first, last), (_, last_key) = self._range(Facts.p), self._range(Facts.k)
        return min(last, max(first, last_key) + 2 * max(self.sizes))

    def possible(self) -> bool:
        """Return whether the class has a point."""
        if not self.sizes:
            return True
        if self._repeats():
            return next(self._boxes(0, math.lcm(*self.sizes)), None) is not None
        return self.smallest() is not None

    def smallest(self, better_than: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
        """Return the smallest solution that is smaller than `better_than`, or None; see `Problem.variables`."""
        count, system = len(self.problem.variables), self.system + self.problem.totals
        if not self.sizes:
            return _smaller(better_than, smallest(system, count))
        best, found = better_than, None
        stop = math.inf if self._repeats() else self._last_query() + 1
        for first, last, low, high in self._boxes(int(self._range(Facts.p)[0]), stop):
            if best is not None and first + 2 > best[TOTAL]:
                break
            sides = [Facts.p - first, -Facts.p + last]
            sides += [Facts.k - int(low)] if low > -math.inf else []
            sides += [-Facts.k + int(high)] if high < math.inf else []
            box = [self.problem.inequality(side) for side in sides]
            if bounds(self.system + box, KEY) is None:
                continue
            candidate = _smaller(best, smallest(system + box, count))
            if candidate is not None:
                best = found = candidate
        return found


def _smaller(best: tuple[int, ...] | None, candidate: tuple[int, ...]) -> tuple[int, ...] | None:
    return candidate if best is None or candidate < best else None
