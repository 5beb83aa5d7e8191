"""com.microsoft.FusedMatMul."""

from __future__ import annotations

import numpy as np

from .twin import Twin, rounded, widened

__all__ = ["FusedMatMul"]


class FusedMatMul(Twin):
    """``alpha * A @ B``; ``transBatch`` moves an operand's first axis behind its other batch axes, before ``trans``."""

    def _run(
        self,
        A: np.ndarray,
        B: np.ndarray,
        alpha: float = 1.0,
        transA: int = 0,
        transB: int = 0,
        transBatchA: int = 0,
        transBatchB: int = 0,
    ) -> tuple[np.ndarray]:
        a, b = _operand(A, transA, transBatchA), _operand(B, transB, transBatchB)
        return (rounded(a @ b * a.dtype.type(alpha), A.dtype),)


def _operand(array: np.ndarray, transpose: int, transpose_batch: int) -> np.ndarray:
    wide = widened(array)
    if transpose_batch:
        wide = np.moveaxis(wide, 0, -2)
    # A vector has no axes to exchange.
    return wide.swapaxes(-1, -2) if transpose and wide.ndim > 1 else wide
