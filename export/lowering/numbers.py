"""Numbers that stand for "not attended" and are safe in an element type.

A fill is added to a score, or stands in its place. In float16 sums must not overflow, or a row without keys is NaN:
3e4 leaves room for scores up to 3.5e4, and is exact for scores within 3e4 of each other.
"""

from __future__ import annotations

import math

__all__ = ["channel_factor", "fill"]

DEPTH = {"float16": 3e4}
# Where exponents have eight bits or more: no score changes it, and no sum overflows.
WIDE_DEPTH = 1e30
LARGEST = {"float16": 3e4}


def fill(dtype: str) -> float:
    """Return the score of a key that is not attended."""
    return -DEPTH.get(dtype, WIDE_DEPTH)


def channel_factor(scale: float, dtype: str) -> float | None:
    """Return c such that scale * c * -c is a fill; None if no c is.

    The query's element is c and a masked key's -c, so that both fit the element type where their product doesn't.
    """
    if scale <= 0:
        return None
    factor = math.sqrt(-fill(dtype) / scale)
    return factor if factor <= LARGEST.get(dtype, WIDE_DEPTH) else None
