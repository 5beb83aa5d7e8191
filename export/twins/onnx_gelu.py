"""Gelu of ONNX, which onnx.reference computes as a function of many steps, each in the element type."""

from __future__ import annotations

import numpy as np

from .gelu import gelu, tanh_gelu
from .twin import Twin, rounded, widened

__all__ = ["Gelu"]


class Gelu(Twin):
    """``x * Phi(x)``, Phi the normal distribution, or its approximation by tanh."""

    op_domain = ""

    def _run(self, X: np.ndarray, approximate: str = "none") -> tuple[np.ndarray]:
        return (rounded((tanh_gelu if approximate == "tanh" else gelu)(widened(X)), X.dtype),)
