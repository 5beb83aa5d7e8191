"""What a constant array is as a function of its index, by its values alone: one value, a range, or a band."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx_ir as ir

from . import terms as t
from .terms import Term
from .values import constant, constant_of

__all__ = ["pattern_of"]


@functools.lru_cache(maxsize=1024)
def pattern_of(value: ir.Value) -> tuple[tuple[int, ...], Any] | None:
    """Return the axes that a constant array varies along, and its term as a function of the indices there."""
    tensor = constant_of(value)
    assert tensor is not None
    try:
        array = tensor.numpy()
    except Exception:  # external data that is not there
        return None
    if array.size == 0 or array.dtype.kind not in "biuf":
        return None
    axes = tuple(axis for axis, n in enumerate(array.shape) if n > 1)
    squeezed = array.reshape([array.shape[axis] for axis in axes])
    first = constant(np.asarray(squeezed.flat[0]).astype(array.dtype)[()])
    if (squeezed == squeezed.flat[0]).all():
        return (), lambda: first
    if squeezed.ndim == 1 and array.dtype.kind in "iu":
        step = int(squeezed[1]) - int(squeezed[0])
        if (np.diff(squeezed.astype(np.int64)) == step).all():
            start = int(squeezed[0])
            return axes, lambda i: t.add(t.integer(start), t.mul(t.integer(step), i))
    if squeezed.ndim == 2:
        band = _band(squeezed)
        return None if band is None else (axes, band)
    return None


def _band(array: np.ndarray[Any, Any]) -> Any:
    """Recognise two values, one where low <= column - row <= high: a triangle or a window, by its values alone."""
    one = array[0, 0]
    other = array.flat[int(np.argmax(array != one))]
    if not ((array == one) | (array == other)).all():
        return None
    for inside, outside in ((one, other), (other, one)):
        bounds = _bounds(array == inside)
        if bounds is not None:
            chosen = (constant(np.asarray(v).astype(array.dtype)[()]) for v in (inside, outside))
            return functools.partial(_choose_in_band, *bounds, *chosen)
    return None


def _bounds(inside: np.ndarray[Any, Any]) -> tuple[int | None, int | None] | None:
    """Return the least and the largest column - row of the true entries, if they are all between; None is no bound."""
    rows, columns = inside.shape
    place, found = np.arange(rows), inside.any(axis=1)
    first, last = inside.argmax(axis=1), columns - 1 - inside[:, ::-1].argmax(axis=1)
    low, high = int((first - place)[found].min()), int((last - place)[found].max())
    from_, to = np.maximum(place + low, 0), np.minimum(place + high, columns - 1)
    if (found != (from_ <= to)).any():
        return None
    wrong = (first != from_) | (last != to) | (inside.sum(axis=1) != last - first + 1)
    if wrong[found].any():
        return None
    # A bound that the array's corner reaches is no bound: the rest of a longer array isn't there to say so.
    return (low if low > 1 - rows else None), (high if high < columns - 1 else None)


def _choose_in_band(least: int | None, most: int | None, inside: Term, outside: Term, q: Term, k: Term) -> Term:
    difference = t.sub(k, q)
    parts = []
    if least is not None:
        parts.append(t.at_most_zero(t.sub(t.integer(least), difference)))
    if most is not None:
        parts.append(t.at_most_zero(t.sub(difference, t.integer(most))))
    return t.choose(t.both(*parts), inside, outside)
