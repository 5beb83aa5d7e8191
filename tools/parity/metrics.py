"""How far two arrays are apart, beside the largest difference: relative, by direction, and in last places."""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np

from ...export.cases.draw import is_float


class Metrics(NamedTuple):
    """Of the rows that were compared; all are 0 (the cosine 1) for arrays that are equal.

    Attributes
    ----------
    max_rel
        Largest difference per absolute value of the reference's number, where that is not 0.
    cosine
        Least cosine of the angle between two rows: along the last axis.
    ulp
        Largest difference in units in the last place of the largest number of the reference's row.
    """

    max_rel: float
    cosine: float
    ulp: float


def metrics_of(actual: np.ndarray, expected: np.ndarray, where: np.ndarray) -> Metrics | None:
    """Compare two arrays of one shape; None for numbers that are not rounded, and where any is not finite.

    Parameters
    ----------
    actual, expected
        Of floating point; of any rank.
    where
        Which numbers count: bool of their shape.
    """
    if not is_float(actual) or not is_float(expected) or not where.any():
        return None
    one = np.where(where, actual.astype(np.float64), 0.0)
    two = np.where(where, expected.astype(np.float64), 0.0)
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        return None
    one, two = (np.atleast_1d(array).reshape(-1, max(array.shape[-1:], default=1)) for array in (one, two))
    apart, size = np.abs(one - two), np.abs(two)
    relative = np.divide(apart, size, out=np.zeros_like(apart), where=size > 0)
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    cosines = np.divide(
        (one * two).sum(axis=1), norms, out=(apart.max(axis=1, initial=0.0) == 0).astype(float), where=norms > 0
    )
    eps = float(ml_dtypes.finfo(expected.dtype).eps)
    largest = size.max(axis=1, keepdims=True, initial=0.0)
    last = eps * np.exp2(np.floor(np.log2(largest, out=np.zeros_like(largest), where=largest > 0)))
    # Rows of zeros alone have no last place to speak of: that of 1 stands for it.
    return Metrics(
        float(relative.max(initial=0.0)), float(min(1.0, cosines.min())), float((apart / last).max(initial=0.0))
    )
