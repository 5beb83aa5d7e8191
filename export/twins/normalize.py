"""Layer normalization, with and without the mean, of float32 or float64."""

from __future__ import annotations

import numpy as np

__all__ = ["layer_normalized", "rms_normalized"]

# Normalized; the mean; one over the deviation.
Normalized = tuple[np.ndarray, np.ndarray, np.ndarray]


def layer_normalized(array: np.ndarray, epsilon: float, axes: tuple[int, ...] = (-1,)) -> Normalized:
    """Return the array less its mean, over its deviation."""
    mean = array.mean(axis=axes, keepdims=True)
    normalized, _, inverse = rms_normalized(array - mean, epsilon, axes)
    return normalized, mean, inverse


def rms_normalized(array: np.ndarray, epsilon: float, axes: tuple[int, ...] = (-1,)) -> Normalized:
    """Return the array over the root of its mean square; the mean counts as zero."""
    inverse = 1 / np.sqrt(np.square(array).mean(axis=axes, keepdims=True) + array.dtype.type(epsilon))
    return array * inverse, np.zeros_like(inverse), inverse
