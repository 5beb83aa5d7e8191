"""com.microsoft.EmbedLayerNormalization."""

from __future__ import annotations

import numpy as np

from .normalize import layer_normalized
from .twin import Twin, rounded, widened

__all__ = ["EmbedLayerNormalization"]


class EmbedLayerNormalization(Twin):
    """The normalized sum of word, position and segment embeddings; the tokens that ``mask`` counts; the sum itself."""

    def _run(
        self,
        input_ids: np.ndarray,
        segment_ids: np.ndarray | None,
        word_embedding: np.ndarray,
        position_embedding: np.ndarray,
        segment_embedding: np.ndarray | None,
        gamma: np.ndarray,
        beta: np.ndarray,
        mask: np.ndarray | None = None,
        position_ids: np.ndarray | None = None,
        epsilon: float = 1e-12,
        mask_index_type: int = 0,
    ) -> tuple[np.ndarray, ...]:
        batch, length = input_ids.shape
        positions = np.arange(length)[None] if position_ids is None else position_ids
        total = widened(word_embedding)[input_ids] + widened(position_embedding)[positions]
        if segment_ids is not None:
            total = total + widened(self.given(segment_embedding, "segment_embedding"))[segment_ids]
        normalized, _, _ = layer_normalized(total, epsilon)
        output = normalized * widened(gamma) + widened(beta)
        counts = np.zeros(batch, np.int32) if mask is None else (mask == 1).sum(axis=1, dtype=np.int32)
        dtype = word_embedding.dtype
        return rounded(output, dtype), counts, rounded(total, dtype)
