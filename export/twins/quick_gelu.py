"""com.microsoft.QuickGelu."""

from __future__ import annotations

import numpy as np

from .twin import Twin, rounded, widened

__all__ = ["QuickGelu"]


class QuickGelu(Twin):
    """``x * sigmoid(alpha * x)``."""

    def _run(self, X: np.ndarray, alpha: float = 1.702) -> tuple[np.ndarray]:
        wide = widened(X)
        # The sigmoid by tanh, which doesn't overflow.
        return (rounded(wide * (0.5 * (1 + np.tanh(wide.dtype.type(alpha / 2) * wide))), X.dtype),)
