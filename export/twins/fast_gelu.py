"""com.microsoft.FastGelu."""

from __future__ import annotations

import numpy as np

from .gelu import tanh_gelu
from .twin import Twin, rounded, widened

__all__ = ["FastGelu"]


class FastGelu(Twin):
    """Gelu by tanh, of input and bias."""

    def _run(self, X: np.ndarray, bias: np.ndarray | None = None) -> tuple[np.ndarray]:
        total = widened(X) if bias is None else widened(X) + widened(bias)
        return (rounded(tanh_gelu(total), X.dtype),)
