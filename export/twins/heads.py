"""Heads side by side in the hidden size, and as an axis of their own. B batch, S length, N heads, D head size."""

from __future__ import annotations

import numpy as np

__all__ = ["merged", "split"]


def split(array_BSH: np.ndarray, heads: int) -> np.ndarray:
    """Return [B, S, N * D] as [B, N, S, D]."""
    batch, length, hidden = array_BSH.shape
    return array_BSH.reshape(batch, length, heads, hidden // heads).transpose(0, 2, 1, 3)


def merged(array_BNSD: np.ndarray) -> np.ndarray:
    """Return [B, N, S, D] as [B, S, N * D]."""
    batch, heads, length, size = array_BNSD.shape
    return array_BNSD.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)
