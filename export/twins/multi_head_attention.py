"""com.microsoft.MultiHeadAttention."""

from __future__ import annotations

import numpy as np

from .attend import attend, bias_fits
from .heads import merged, split
from .key_mask import aligned_causal, filled, keys_attended
from .twin import Twin, rounded, widened

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(Twin):
    """Queries, keys and values, together or apart; key mask, additive bias, causal, growing cache.

    Not: a cache in a shared buffer, beams (``cache_indirection``), the scores as an output. A cache whose present
    outputs aren't wired is refused, since the CPU then leaves the cache out.
    """

    def _run(
        self,
        query: np.ndarray,
        key: np.ndarray | None = None,
        value: np.ndarray | None = None,
        bias: np.ndarray | None = None,
        key_padding_mask: np.ndarray | None = None,
        attention_bias: np.ndarray | None = None,
        past_key: np.ndarray | None = None,
        past_value: np.ndarray | None = None,
        *others: np.ndarray | None,
        num_heads: int,
        unidirectional: int = 0,
        scale: float | None = None,
        mask_filter_value: float = -10000.0,
    ) -> tuple[np.ndarray, ...]:
        self.require(all(other is None for other in others), "a shared cache and beams have no twin")
        self.require(not self.wired(3), "the scores as an output have no twin")
        q, k, v = self._projected(query, key, value, bias, num_heads)
        past = 0
        self.require((past_key is None) == (past_value is None), "expected both parts of the cache, or neither")
        if past_key is not None and past_value is not None:
            self.require(self.wired(1) and self.wired(2), "a cache needs both present outputs, or the CPU ignores it")
            past = past_key.shape[2]
            k = np.concatenate([widened(past_key), k], axis=2)
            v = np.concatenate([widened(past_value), v], axis=2)
        (batch, _, queries, _), keys = q.shape, k.shape[2]
        self.require(
            bias_fits(attention_bias, batch, num_heads, queries, keys),
            f"expected attention_bias of [{batch} or 1, {num_heads} or 1, {queries}, {keys}]",
        )
        added = np.zeros((), q.dtype) if attention_bias is None else widened(attention_bias)
        if key_padding_mask is not None:
            attended = keys_attended(self, key_padding_mask, batch, queries, keys)
            added = added + filled(attended, mask_filter_value, q.dtype)
        allowed = aligned_causal(self, queries, keys, past) if unidirectional else None
        output = merged(attend(q, k, v, scale, allowed=allowed, added=added))
        return tuple(rounded(array, query.dtype) for array in (output, k, v))

    def _projected(
        self, query: np.ndarray, key: np.ndarray | None, value: np.ndarray | None, bias: np.ndarray | None, heads: int
    ) -> list[np.ndarray]:
        """Return queries, keys and values [B, N, S, D] with their bias."""
        if query.ndim == 5:
            self.require(key is None and value is None, "packed queries, keys and values leave key and value out")
            parts = [_unpacked(query, i) for i in range(3)]
        elif key is not None and key.ndim == 5:
            self.require(value is None, "packed keys and values leave value out")
            parts = [query, *(_unpacked(key, i) for i in range(2))]
        else:
            parts = [query, self.given(key, "key, or packed ones"), self.given(value, "value, or packed ones")]
        widths = [part.shape[1] * part.shape[3] if part.ndim == 4 else part.shape[2] for part in parts]
        biases = np.split(np.zeros(sum(widths)) if bias is None else widened(bias), np.cumsum(widths)[:-1])
        projected = []
        for part, added in zip(parts, biases, strict=True):
            # Keys and values [B, N, T, D] come from a cache, which holds their bias.
            wide = widened(part)
            projected.append(wide if part.ndim == 4 else split(wide + added.astype(wide.dtype), heads))
        return projected


def _unpacked(array: np.ndarray, place: int) -> np.ndarray:
    """Return one of the parts of [B, S, N, parts, D] as [B, S, N * D]."""
    batch, length, heads, _, size = array.shape
    return array[:, :, :, place].reshape(batch, length, heads * size)
