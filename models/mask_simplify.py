"""The normal form in which a mask is printed: negations at the leaves, one window, nothing implied by the rest."""

from __future__ import annotations

import functools
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


def _interval(expr: Expr) -> tuple[Affine, int | None, int | None] | None:
    """Return (s, low, high) if the expression is q + s + low <= k <= q + s + high; None is no bound."""
    match expr:
        case ("causal", offset):
            return offset.symbolic, None, offset.const
        case ("window", left, right, offset):
            low = None if left < 0 else offset.const - left
            return offset.symbolic, low, None if right < 0 else offset.const + right
        case ("chunked", 1):
            return past, 0, 0
        case ("not", inner):
            match _interval(inner):
                case (symbol, None, int(high)):
                    return symbol, high + 1, None
                case (symbol, int(low), None):
                    return symbol, None, low - 1
    return None


def _from_interval(symbol: Affine, low: int | None, high: int | None) -> Expr:
    match low, high:
        case None, None:
            return FULL
        case None, int():
            # `causal` where the offset says it all, else the window that reaches `high` past the query.
            return ("window", -1, high, symbol) if high > 0 else ("causal", symbol + high)
        case int(), None:
            return ("not", ("causal", symbol + (low - 1))) if low > 0 else ("window", -low, -1, symbol)
    if low > high:
        return NOTHING
    center = min(max(low, 0), high)
    return "window", center - low, high - center, symbol + center


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


def _meet(intervals: list[tuple[int | None, int | None]]) -> list[tuple[int | None, int | None]]:
    lows = [low for low, _ in intervals if low is not None]
    highs = [high for _, high in intervals if high is not None]
    return [(max(lows, default=None), min(highs, default=None))]


def _join(intervals: list[tuple[int | None, int | None]]) -> list[tuple[int | None, int | None]]:
    """Unite intervals that overlap or touch."""
    joined: list[tuple[int | None, int | None]] = []
    for low, high in sorted(intervals, key=lambda i: (i[0] is not None, i[0] or 0)):
        last = joined[-1] if joined else None
        if last is not None and (last[1] is None or low is None or low <= last[1] + 1):
            open_end = last[1] is None or high is None
            joined[-1] = (last[0], None if open_end else max(last[1], high))  # type: ignore[type-var]
        else:
            joined.append((low, high))
    return joined


def _merge(parts: Iterable[Expr], combine: Callable[[list], list]) -> list[Expr]:
    """Combine the windows with one offset; keep the rest."""
    windows: dict[Affine, list[tuple[int | None, int | None]]] = {}
    others: list[Expr] = []
    for part in parts:
        interval = _interval(part)
        if interval is None:
            others.append(part)
        else:
            windows.setdefault(interval[0], []).append(interval[1:])
    merged = [
        _from_interval(symbol, *bounds) for symbol, found in windows.items() for bounds in combine(found)
    ]
    return merged + list(dict.fromkeys(others))


def _sides(expr: Expr) -> list[Expr]:
    """Split a window into its two bounds, so that each is kept only if it is needed."""
    interval = _interval(expr)
    if interval is None or None in interval or interval[1] == interval[2]:
        return [expr]
    symbol, low, high = interval
    return [_from_interval(symbol, low, None), _from_interval(symbol, None, high)]


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
        return expr
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
