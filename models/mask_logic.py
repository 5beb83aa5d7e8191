"""Decide whether a mask can attend: equality, implication and the smallest witness.

At one point (b, h, q, k) a mask is a boolean function of three kinds of facts (mask_facts), and each kind has an exact
procedure: linear comparisons (mask_linear), chunks (mask_chunks) and loads of tensors (mask_problem). A choice of
values for the first two is a class of points; all that is left in a class are the loads.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from .mask_chunks import Chunks
from .mask_facts import K_LEN, KEY, PAST, Q_LEN, QUERY
from .mask_leaves import Expr, tensors_of
from .mask_problem import Problem

__all__ = ["Sizes", "Witness", "reach", "satisfiable", "witness"]


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


@functools.lru_cache(maxsize=65536)
def satisfiable(expr: Expr) -> bool:
    """Return whether there are sizes, indices and tensors at which the expression attends."""
    problem = Problem(expr, self_attention=False)
    return any(
        problem.loads(known) is not None and Chunks(problem, known, system).possible()
        for known, system in problem.classes()
    )


def witness(expr: Expr, self_attention: bool = False) -> Witness | None:
    """Return the smallest point at which the expression attends, or None.

    Smallest means the least q_len + k_len + past; then the least past, q_len, k_len, q and k. `self_attention`
    asks for k_len == q_len + past.
    """
    if not satisfiable(expr):
        return None
    problem = Problem(expr, self_attention)
    best: tuple[int, ...] | None = None
    loads: dict[Any, int] = {}
    for known, system in problem.classes():
        values = problem.loads(known)
        if values is not None:
            chunks = Chunks(problem, known, system)
            found = chunks.smallest(best) if chunks.possible() else None
            if found is not None:
                best, loads = found, values
    return None if best is None else _materialize(problem, best, loads)


def reach(expr: Expr) -> int:
    """Return a distance between query and key beyond which every bound of the expression lies."""
    problem = Problem(expr, self_attention=False)
    cuts = [abs(value) for values in problem.cuts.values() for value in values]
    return sum(cuts) + sum(size for _, size in problem.chunks) + 1


def _materialize(problem: Problem, solution: tuple[int, ...], loads: dict[Any, int]) -> Witness:
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
