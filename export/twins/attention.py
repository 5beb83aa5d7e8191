"""com.microsoft.Attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .attend import attend, bias_fits
from .heads import merged, split
from .key_mask import aligned_causal, filled, keys_attended
from .twin import Twin, rounded, widened

__all__ = ["Attention"]


class Attention(Twin):
    """Projections of one input by stacked weights, then attention as MultiHeadAttention's.

    Not: rotary embedding, a cache in a shared buffer, masks of rank 4.
    """

    def _run(
        self,
        input: np.ndarray,
        weights: np.ndarray,
        bias: np.ndarray | None = None,
        mask_index: np.ndarray | None = None,
        past: np.ndarray | None = None,
        attention_bias: np.ndarray | None = None,
        *others: np.ndarray | None,
        num_heads: int,
        unidirectional: int = 0,
        scale: float | None = None,
        mask_filter_value: float = -10000.0,
        qkv_hidden_sizes: Sequence[int] | None = None,
        do_rotary: int = 0,
        rotary_embedding_dim: int = 0,
        past_present_share_buffer: int = 0,
    ) -> tuple[np.ndarray, ...]:
        self.require(not do_rotary and not rotary_embedding_dim, "rotary embedding has no twin")
        self.require(
            not past_present_share_buffer and all(other is None for other in others), "a shared cache has no twin"
        )
        widths = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
        projected = widened(input) @ widened(weights)
        if bias is None:
            self.disagree("without a bias the kernel on the CPU ends the process")
        else:
            projected = projected + widened(bias)
        q, k, v = (split(part, num_heads) for part in np.split(projected, np.cumsum(widths)[:-1], axis=-1))
        cached = 0
        if past is not None:
            self.require(self.wired(1), "a cache needs the present output, or the CPU ignores it")
            cached = past.shape[3]
            k, v = (np.concatenate([widened(old), new], axis=2) for old, new in zip(past, (k, v), strict=True))
        (batch, _, queries, _), keys = q.shape, k.shape[2]
        self.require(
            bias_fits(attention_bias, batch, num_heads, queries, keys),
            f"expected attention_bias of [{batch} or 1, {num_heads} or 1, {queries}, {keys}]",
        )
        added = np.zeros((), q.dtype) if attention_bias is None else widened(attention_bias)
        if mask_index is not None:
            attended = keys_attended(self, mask_index, batch, queries, keys, starts=True)
            added = added + filled(attended, mask_filter_value, q.dtype)
        allowed = aligned_causal(self, queries, keys, cached) if unidirectional else None
        output = rounded(merged(attend(q, k, v, scale, allowed=allowed, added=added)), input.dtype)
        return (output, rounded(np.stack([k, v]), input.dtype)) if self.wired(1) else (output,)
