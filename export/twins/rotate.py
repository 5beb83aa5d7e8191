"""Rotary position embedding of heads."""

from __future__ import annotations

import numpy as np

__all__ = ["rotated"]


def rotated(
    heads_BNSD: np.ndarray, cos_cache: np.ndarray, sin_cache: np.ndarray, positions_BS: np.ndarray, interleaved: bool
) -> np.ndarray:
    """Return heads whose first 2 * R features are turned, R the width of the caches [longest, R].

    Pairs are (i, i + R), or (2i, 2i + 1) where they are interleaved.
    """
    cos, sin = (cache[positions_BS][:, None].astype(heads_BNSD.dtype) for cache in (cos_cache, sin_cache))
    width = 2 * cos.shape[-1]
    turned, kept = heads_BNSD[..., :width], heads_BNSD[..., width:]
    real, imaginary = (turned[..., ::2], turned[..., 1::2]) if interleaved else np.split(turned, 2, axis=-1)
    pairs = (real * cos - imaginary * sin, real * sin + imaginary * cos)
    turned = np.stack(pairs, axis=-1).reshape(turned.shape) if interleaved else np.concatenate(pairs, axis=-1)
    return np.concatenate([turned, kept], axis=-1)
