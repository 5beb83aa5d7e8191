"""com.microsoft.BiasGelu."""

from __future__ import annotations

import numpy as np

from .gelu import gelu
from .twin import Twin, rounded, widened

__all__ = ["BiasGelu"]


class BiasGelu(Twin):
    """Gelu of input and bias."""

    def _run(self, A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray]:
        return (rounded(gelu(widened(A) + widened(B)), A.dtype),)
