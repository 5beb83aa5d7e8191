"""The normal form in which a mask is printed: negations at the leaves, one window, nothing implied by the rest."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable

from .mask_leaves import LEAVES, Expr
from .mask_logic import satisfiable
from .mask_rows import Affine, past
from .mask_text import text

__all__ = ["conjuncts", "simplify"]

FULL: Expr = ("full",)
NOTHING: Expr = ("not", FULL)
_DUAL = {"and": "or", "or": "and"}
_RANK = {name: rank for rank, name in enumerate(LEAVES)}


Bounds = tuple[float, float]


def _interval(expr: Expr) -> tuple[Affine, Bounds] | None:
    """Return (s, (low, high)) if the expression is q + s + low <= k <= q + s + high; infinite is no bound."""
    match expr:
        case ("causal", offset):
            return offset.symbolic, (-math.inf, offset.const)
        case ("window", left, right, offset):
            low = -math.inf if left < 0 else offset.const - left
            return offset.symbolic, (low, math.inf if right < 0 else offset.const + right)
        case ("chunked", 1):
            return past, (0, 0)
        case ("not", inner) if (interval := _interval(inner)) is not None:
            symbol, (low, high) = interval
            if low == -math.inf:
                return symbol, (high + 1, math.inf)
            if high == math.inf:
                return symbol, (-math.inf, low - 1)
    return None


def _from_interval(symbol: Affine, bounds: Bounds) -> Expr:
    low, high = bounds
    if low > high or low == math.inf or high == -math.inf:
        return NOTHING
    if low > -math.inf and high < math.inf:
        center = int(min(max(low, 0), high))
        return "window", int(center - low), int(high - center), symbol + center
    if high < math.inf:
        # `causal` where the offset says it all, else the window that reaches `high` past the query.
        return ("window", -1, int(high), symbol) if high > 0 else ("causal", symbol + int(high))
    if low > -math.inf:
        return ("not", ("causal", symbol + int(low - 1))) if low > 0 else ("window", int(-low), -1, symbol)
    return FULL


def _negation(expr: Expr) -> Expr:
    """Return the complement with negations at the leaves."""
    head, *parts = expr
    if head == "not":
        return _normal(parts[0])
    if head in _DUAL:
        return (_DUAL[head], *map(_negation, parts))
    return _normal(("not", expr))


def _normal(expr: Expr) -> Expr:
    head, *parts = expr
    if head in _DUAL:
        return (head, *map(_normal, parts))
    if head == "not" and (parts[0][0] == "not" or parts[0][0] in _DUAL):
        return _negation(parts[0])
    interval = _interval(expr)
    return expr if interval is None else _from_interval(*interval)


def _order(expr: Expr) -> tuple[int, int, str]:
    """Plain leaves first in the table's order, then negated ones, then what is joined."""
    head = expr[0]
    if head in _DUAL:
        return 2, 0, text(expr)
    leaf = expr[1] if head == "not" else expr
    return int(head == "not"), _RANK[leaf[0]], text(expr)


def _meet(intervals: list[Bounds]) -> list[Bounds]:
    lows, highs = zip(*intervals, strict=True)
    return [(max(lows), min(highs))]


def _join(intervals: list[Bounds]) -> list[Bounds]:
    """Unite intervals that overlap or touch."""
    joined: list[Bounds] = []
    for low, high in sorted(intervals):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return joined


def _merge(parts: Iterable[Expr], combine: Callable[[list[Bounds]], list[Bounds]]) -> list[Expr]:
    """Combine the windows with one offset; keep the rest."""
    windows: dict[Affine, list[Bounds]] = {}
    others: list[Expr] = []
    for part in parts:
        interval = _interval(part)
        if interval is None:
            others.append(part)
        else:
            windows.setdefault(interval[0], []).append(interval[1])
    merged = [_from_interval(symbol, bounds) for symbol, found in windows.items() for bounds in combine(found)]
    return merged + list(dict.fromkeys(others))


def _sides(expr: Expr) -> list[Expr]:
    """Split a window into its two bounds, so that each is kept only if it is needed."""
    interval = _interval(expr)
    if interval is None:
        return [expr]
    symbol, (low, high) = interval
    if math.inf in (-low, high) or low == high:
        return [expr]
    return [_from_interval(symbol, (low, math.inf)), _from_interval(symbol, (-math.inf, high))]


def _without_implied(parts: list[Expr]) -> list[Expr]:
    """Drop each conjunct that the others imply, the plainest last."""
    kept = sorted(parts, key=lambda part: (_interval(part) is not None, _order(part)))[::-1]
    for part in list(kept):
        rest = [other for other in kept if other is not part]
        if not satisfiable(("and", *rest, FULL, ("not", part))):
            kept = rest
    return kept


def _conjunction(parts: Iterable[Expr]) -> list[Expr]:
    flat: list[Expr] = []
    for part in parts:
        flat += part[1:] if part[0] == "and" else [part]
    pieces = [side for part in _merge(flat, _meet) for side in _sides(part)]
    if not satisfiable(("and", FULL, *pieces)):
        return [NOTHING]
    return sorted(_merge(_without_implied(pieces), _meet), key=_order)


@functools.lru_cache(maxsize=16384)
def simplify(expr: Expr) -> Expr:
    """Return the normal form of an expression: it means the same and is printed."""
    expr = _normal(expr)
    head, *parts = expr
    if head not in _DUAL:
        return _joined("and", _conjunction([expr]), FULL)
    parts = [simplify(part) for part in parts]
    if head == "and":
        return _joined("and", _conjunction(parts), FULL)
    flat = [piece for part in parts for piece in (part[1:] if part[0] == "or" else [part])]
    # A disjunct can go where its complement, as a conjunct of the complement, can.
    kept = _conjunction([_negation(part) for part in _merge(flat, _join)])
    parts = _merge([simplify(_negation(part)) for part in kept], _join)
    return _joined("or", sorted(parts, key=_order), NOTHING)


def _joined(head: str, parts: list[Expr], empty: Expr) -> Expr:
    if not parts:
        return empty
    return parts[0] if len(parts) == 1 else (head, *parts)


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """Return the expressions whose conjunction the normal form is."""
    expr = simplify(expr)
    return expr[1:] if expr[0] == "and" else (expr,)
