"""com.microsoft.FusedGemm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .twin import Twin, rounded, widened

__all__ = ["FusedGemm"]

Activation = Callable[[np.ndarray, float | None], np.ndarray]
# Of the product, and of activation_alpha.
_ACTIVATIONS: dict[str, Activation] = {
    "": lambda x, _: x,
    "LeakyRelu": lambda x, alpha: np.where(x < 0, x * x.dtype.type(0.01 if alpha is None else alpha), x),
    "Relu": lambda x, _: np.maximum(x, 0),
    "Sigmoid": lambda x, _: 0.5 * (1 + np.tanh(0.5 * x)),
    "Tanh": lambda x, _: np.tanh(x),
}


class FusedGemm(Twin):
    """An activation of ``alpha * A @ B + beta * C``: LeakyRelu, Relu, Sigmoid or Tanh."""

    def _run(
        self,
        A: np.ndarray,
        B: np.ndarray,
        C: np.ndarray | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        transA: int = 0,
        transB: int = 0,
        activation: str = "",
        activation_alpha: float | None = None,
    ) -> tuple[np.ndarray]:
        self.require(activation in _ACTIVATIONS, f"the activation {activation!r} has no twin")
        a, b = (widened(x).T if transposed else widened(x) for x, transposed in ((A, transA), (B, transB)))
        total = a @ b * a.dtype.type(alpha)
        if C is not None:
            total = total + widened(C) * total.dtype.type(beta)
        return (rounded(_ACTIVATIONS[activation](total, activation_alpha), A.dtype),)
