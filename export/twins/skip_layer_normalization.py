"""com.microsoft.SkipLayerNormalization."""

from __future__ import annotations

import numpy as np

from .normalize import layer_normalized
from .twin import Twin, rounded, widened

__all__ = ["SkipLayerNormalization", "summed"]


class SkipLayerNormalization(Twin):
    """The normalized sum of input, skip and bias; its mean, its inverse deviation, and the sum itself."""

    def _run(
        self,
        input: np.ndarray,
        skip: np.ndarray,
        gamma: np.ndarray,
        beta: np.ndarray | None = None,
        bias: np.ndarray | None = None,
        epsilon: float = 1e-12,
    ) -> tuple[np.ndarray, ...]:
        total = summed(self, input, skip, bias)
        normalized, mean, inverse = layer_normalized(total, epsilon)
        output = normalized * widened(gamma)
        if beta is not None:
            output = output + widened(beta)
        return rounded(output, input.dtype), mean, inverse, rounded(total, input.dtype)


def summed(twin: Twin, input: np.ndarray, skip: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return input, skip and bias added; skip may lack the batch, or have one of 1."""
    twin.require(
        skip.shape in (input.shape, input.shape[1:], (1, *input.shape[1:])),
        f"expected a skip of {input.shape}, with or without its batch; got {skip.shape}",
    )
    total = widened(input) + widened(skip)
    return total if bias is None else total + widened(bias)
