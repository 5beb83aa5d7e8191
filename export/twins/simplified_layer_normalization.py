"""SimplifiedLayerNormalization, which ONNX Runtime keeps in the domain of ONNX."""

from __future__ import annotations

import numpy as np

from .normalize import rms_normalized
from .twin import Twin, rounded, widened

__all__ = ["SimplifiedLayerNormalization"]


class SimplifiedLayerNormalization(Twin):
    """The input over its root mean square along the axes from ``axis``, in the type of ``scale``; the inverse."""

    op_domain = ""

    def _run(
        self, X: np.ndarray, scale: np.ndarray, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        axes = tuple(range(axis % X.ndim, X.ndim))
        normalized, _, inverse = rms_normalized(widened(X), epsilon, axes)
        return rounded(normalized * widened(scale), scale.dtype), inverse
