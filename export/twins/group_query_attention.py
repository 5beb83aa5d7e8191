"""com.microsoft.GroupQueryAttention."""

from __future__ import annotations

from typing import Any

import numpy as np

from .attend import attend, bias_fits
from .heads import merged, split
from .rotate import rotated
from .twin import Twin, rounded, widened

__all__ = ["GroupQueryAttention"]

# Attributes of the forms that have no twin, where they ask for nothing.
_NEUTRAL = {
    "k_quant_type": "NONE",
    "kv_cache_bit_width": 0,
    "qk_output": 0,
    "sliding_window_cache": 0,
    "v_quant_type": "NONE",
}


class GroupQueryAttention(Twin):
    """Groups of query heads share keys and values; lengths of rows, causal or not, window, softcap, sink, cache.

    Row b has ``seqlens_k[b] + 1`` keys, this run's last. Query q, at position p, attends its row's keys k <= p, with a
    window W those with k > p - W (W keys, its own included). A query that is no key of its row attends by the same
    rule; if that leaves no key it is zero. Present keys past the row's end are zero, or what the cache held there.

    Rotary embedding is by ``position_ids``, of which the first prompt reads the first number alone, for every row.

    Not: quantized, paged or window-sized caches, normalization of queries and keys, the scores as an output.
    """

    def _run(
        self,
        query: np.ndarray,
        key: np.ndarray | None = None,
        value: np.ndarray | None = None,
        past_key: np.ndarray | None = None,
        past_value: np.ndarray | None = None,
        seqlens_k: np.ndarray | None = None,
        total_sequence_length: np.ndarray | None = None,
        cos_cache: np.ndarray | None = None,
        sin_cache: np.ndarray | None = None,
        position_ids: np.ndarray | None = None,
        attention_bias: np.ndarray | None = None,
        head_sink: np.ndarray | None = None,
        *others: np.ndarray | None,
        num_heads: int,
        kv_num_heads: int,
        scale: float | None = None,
        softcap: float = 0.0,
        causal: int = 1,
        local_window_size: int = -1,
        do_rotary: int = 0,
        rotary_interleaved: int = 0,
        smooth_softmax: int = -1,
        **unknown: Any,
    ) -> tuple[np.ndarray, ...]:
        self.require(all(other is None for other in others), "scales and norms of queries and keys have no twin")
        self.require(unknown.items() <= _NEUTRAL.items(), f"{unknown} has no twin")
        self.require(not self.wired(3), "the scores as an output have no twin")
        q, k, v = self._heads(query, key, value, num_heads, kv_num_heads)
        batch, _, queries, _ = q.shape
        longest = int(self.given(total_sequence_length, "total_sequence_length").reshape(()))
        ends = self.given(seqlens_k, "seqlens_k").reshape(-1).astype(np.int64) + 1
        prompt = longest == queries
        self.require(
            ends.shape == (batch,) and batch and 1 <= ends.min() <= ends.max() <= longest and queries <= longest,
            f"expected a batch with 1 to {longest} keys in each row, which has {queries} new ones; got {ends}",
        )
        self.require(prompt or past_key is not None, f"{queries} queries over {longest} keys need a cache")
        self.require(prompt or queries == 1 or batch == 1, "several new tokens over a cache need a batch of one")
        starts = np.zeros_like(ends) if prompt else ends - queries
        positions = starts[:, None] + np.arange(queries)
        if do_rotary:
            cos, sin = self.given(cos_cache, "cos_cache"), self.given(sin_cache, "sin_cache")
            at = positions if position_ids is None else position_ids
            if prompt:
                at = np.broadcast_to(at[0, 0] + np.arange(queries), positions.shape)
            self.require(at.shape == positions.shape, f"expected position_ids of {positions.shape}")
            q, k = (rotated(heads, cos, sin, at, bool(rotary_interleaved)) for heads in (q, k))
        k, v = self._cached(k, past_key, starts, longest), self._cached(v, past_value, starts, longest)
        self.require(
            bias_fits(attention_bias, batch, num_heads, queries, longest),
            f"expected attention_bias of [{batch} or 1, {num_heads} or 1, {queries}, {longest}]",
        )
        column = np.arange(longest)
        allowed = np.broadcast_to(column < ends[:, None, None], (batch, queries, longest))
        if causal:
            allowed = allowed & (column <= positions[..., None])
        elif prompt and ends.min() < queries:
            self.disagree("without causal, CUDA attends the padding of the first prompt")
        if local_window_size > 0:
            self.require(causal, "a window needs causal")
            allowed = allowed & (column > positions[..., None] - local_window_size)
            if attention_bias is not None:
                self.disagree("with a bias, CUDA's window keeps one key more")
        sink = np.zeros(num_heads) if smooth_softmax > 0 else head_sink
        output = attend(
            q,
            k[:, :, :longest],
            v[:, :, :longest],
            scale,
            allowed=allowed[:, None],
            added=None if attention_bias is None else widened(attention_bias),
            softcap=softcap,
            sink=sink,
        )
        return tuple(rounded(array, query.dtype) for array in (merged(output), k, v))

    def _heads(
        self, query: np.ndarray, key: np.ndarray | None, value: np.ndarray | None, heads: int, groups: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        self.require(heads % groups == 0, f"{groups} heads of keys don't divide {heads} of queries")
        if key is None or value is None:
            self.require(key is None and value is None, "expected both key and value, or neither")
            size = query.shape[2] // (heads + 2 * groups)
            query, key, value = np.split(query, [heads * size, (heads + groups) * size], axis=-1)
        self.require(key.shape[:2] == query.shape[:2], "expected as many new keys as queries")
        return split(widened(query), heads), split(widened(key), groups), split(widened(value), groups)

    def _cached(self, new: np.ndarray, past: np.ndarray | None, starts: np.ndarray, longest: int) -> np.ndarray:
        """Return what the cache holds after this run: each row's new keys follow its old ones."""
        batch, groups, length, size = new.shape
        room = 0 if past is None else past.shape[2]
        self.require(starts.max() <= room or not starts.any(), f"the cache holds {room} keys, {starts} are expected")
        cache = np.zeros((batch, groups, max(longest, room), size), new.dtype)
        if past is not None:
            cache[:, :, :room] = widened(past)
        for row, start in enumerate(starts):
            cache[row, :, start : start + length] = new[row]
        return cache
