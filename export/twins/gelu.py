"""com.microsoft.Gelu."""

from __future__ import annotations

import math

import numpy as np

from .twin import Twin, rounded, widened

__all__ = ["Gelu", "gelu", "tanh_gelu"]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(array: np.ndarray) -> np.ndarray:
    """Return ``x * Phi(x)``, Phi the normal distribution; of float32 or float64."""
    return array * (0.5 * (1 + _erf(array * math.sqrt(0.5)).astype(array.dtype)))


def tanh_gelu(array: np.ndarray) -> np.ndarray:
    """Return Gelu's approximation by tanh; of float32 or float64."""
    return 0.5 * array * (1 + np.tanh(math.sqrt(2 / math.pi) * (array + 0.044715 * array**3)))


class Gelu(Twin):
    """``x * Phi(x)``, Phi the normal distribution."""

    def _run(self, X: np.ndarray) -> tuple[np.ndarray]:
        return (rounded(gelu(widened(X)), X.dtype),)
