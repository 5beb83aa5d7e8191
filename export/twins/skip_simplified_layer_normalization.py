"""com.microsoft.SkipSimplifiedLayerNormalization."""

from __future__ import annotations

import numpy as np

from .normalize import rms_normalized
from .skip_layer_normalization import summed
from .twin import Twin, rounded, widened

__all__ = ["SkipSimplifiedLayerNormalization"]


class SkipSimplifiedLayerNormalization(Twin):
    """The sum of input, skip and bias over its root mean square; a mean of zero, the inverse, and the sum itself."""

    def _run(
        self,
        input: np.ndarray,
        skip: np.ndarray,
        gamma: np.ndarray,
        bias: np.ndarray | None = None,
        epsilon: float = 1e-12,
    ) -> tuple[np.ndarray, ...]:
        total = summed(self, input, skip, bias)
        normalized, mean, inverse = rms_normalized(total, epsilon)
        return rounded(normalized * widened(gamma), input.dtype), mean, inverse, rounded(total, input.dtype)
