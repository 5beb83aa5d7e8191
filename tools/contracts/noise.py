"""What rounding may change."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ...export.cases.draw import is_float
from ...export.cases.parity import tolerance_of
from .subject import Arrays

# Roundings of the same sums, in the same order: what weighs nothing adds nothing. It is the least of a part of 1.
SAME_SHAPE = 8


def same_shape(outputs: Arrays) -> float:
    """Return how far rows may move in two runs of the same shape that differ in what they must not read."""
    dtypes = [array.dtype for array in outputs.values() if is_float(array)]
    eps = [float(ml_dtypes.finfo(dtype).eps) for dtype in dtypes]
    return SAME_SHAPE * max(eps, default=0.0)


def other_shape(array: np.ndarray) -> float:
    """Return how far rows may be apart in two runs of other shapes: sums in another order."""
    return tolerance_of(array.dtype).value
