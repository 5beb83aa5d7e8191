"""com.microsoft.RotaryEmbedding."""

from __future__ import annotations

import numpy as np

from .heads import merged, split
from .rotate import rotated
from .twin import Twin, rounded, widened

__all__ = ["RotaryEmbedding"]


class RotaryEmbedding(Twin):
    """Heads turned by their positions: [B, S, N * D] or [B, N, S, D]; positions [1], of the first token, or [B, S].

    Not: a scale other than 1, packed batches.
    """

    def _run(
        self,
        input: np.ndarray,
        position_ids: np.ndarray,
        cos_cache: np.ndarray,
        sin_cache: np.ndarray,
        interleaved: int = 0,
        num_heads: int = 0,
        rotary_embedding_dim: int = 0,
        scale: float = 1.0,
        is_packed_batching: int = 0,
    ) -> tuple[np.ndarray]:
        self.require(scale == 1 and not is_packed_batching, "a scale and packed batches have no twin")
        width = 2 * cos_cache.shape[-1]
        self.require(
            rotary_embedding_dim in (0, width),
            f"expected caches of {rotary_embedding_dim // 2} columns, got {width // 2}",
        )
        self.require(num_heads or not rotary_embedding_dim, "rotary_embedding_dim needs num_heads")
        heads = input if input.ndim == 4 else split(input, num_heads or input.shape[-1] // width)
        batch, _, length, _ = heads.shape
        positions = position_ids
        if position_ids.shape == (1,):
            positions = np.broadcast_to(position_ids + np.arange(length), (batch, length))
        self.require(positions.shape == (batch, length), f"expected position_ids of [1] or [{batch}, {length}]")
        self.require(
            positions.size == 0 or 0 <= positions.min() <= positions.max() < len(cos_cache),
            f"expected positions from 0 to {len(cos_cache) - 1}",
        )
        output = rotated(widened(heads), cos_cache, sin_cache, positions, bool(interleaved))
        return (rounded(output if input.ndim == 4 else merged(output), input.dtype),)
