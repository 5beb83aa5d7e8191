"""com.microsoft.PackedMultiHeadAttention, which only CUDA runs."""

from __future__ import annotations

import numpy as np

from .attend import attend, bias_fits
from .heads import merged, split
from .twin import Twin, rounded, widened

__all__ = ["PackedMultiHeadAttention"]


class PackedMultiHeadAttention(Twin):
    """Every token attends the tokens of its own sequence; tokens [T, hidden] stand one after the other, unpadded.

    ``token_offset`` [B, S] must say that each sequence starts its padded row, as the documentation wants it: kernels
    that read it mask the end of the row, and others don't read it. S is at least the longest sequence. An attention
    bias [B or 1, N or 1, S, S] is read at places within the sequence.
    """

    def _run(
        self,
        query: np.ndarray,
        key: np.ndarray | None = None,
        value: np.ndarray | None = None,
        bias: np.ndarray | None = None,
        token_offset: np.ndarray | None = None,
        cumulative_sequence_length: np.ndarray | None = None,
        attention_bias: np.ndarray | None = None,
        *,
        num_heads: int,
        scale: float | None = None,
        mask_filter_value: float = -10000.0,
    ) -> tuple[np.ndarray]:
        offsets = self.given(token_offset, "token_offset")
        ends = self.given(cumulative_sequence_length, "cumulative_sequence_length")
        if query.ndim == 4:
            self.require(key is None and value is None, "packed queries, keys and values leave key and value out")
            parts = [query[:, :, i].reshape(len(query), query.shape[1] * query.shape[3]) for i in range(3)]
        else:
            parts = [query, self.given(key, "key, or packed ones"), self.given(value, "value, or packed ones")]
        self._check(offsets, ends, parts)
        batch, length = offsets.shape
        self.require(
            bias_fits(attention_bias, batch, num_heads, length, length),
            f"expected attention_bias of [{batch} or 1, {num_heads} or 1, {length}, {length}]",
        )
        wide = [widened(part) for part in parts]
        if bias is not None:
            biases = np.split(widened(bias), np.cumsum([part.shape[1] for part in parts])[:-1])
            wide = [part + added for part, added in zip(wide, biases, strict=True)]
        output = np.zeros_like(wide[2])
        for row in range(batch):
            start, end = ends[row : row + 2]
            q, k, v = (split(part[None, start:end], num_heads) for part in wide)
            added = None
            if attention_bias is not None:
                size = end - start
                added = widened(attention_bias[row % len(attention_bias)][None, :, :size, :size])
            output[start:end] = merged(attend(q, k, v, scale, added=added))[0]
        return (rounded(output, query.dtype),)

    def _check(self, offsets: np.ndarray, ends: np.ndarray, parts: list[np.ndarray]) -> None:
        batch, length = offsets.shape
        tokens = len(parts[0])
        counts = np.diff(ends)
        self.require(
            ends.shape == (batch + 1,) and ends[0] == 0 and ends[-1] == tokens and (counts >= 0).all(),
            f"expected cumulative_sequence_length of [{batch + 1}] to grow from 0 to the {tokens} tokens; got {ends}",
        )
        self.require(
            counts.max(initial=0) <= length, f"a sequence of {counts.max(initial=0)} tokens has no room in {length}"
        )
        self.require(all(len(part) == tokens for part in parts), "expected as many keys and values as queries")
        in_rows = np.concatenate([row * length + np.arange(count) for row, count in enumerate(counts)] or [ends[1:]])
        self.require(
            np.array_equal(offsets.reshape(-1)[:tokens], in_rows),
            "expected token_offset to begin with the tokens' places in rows that are padded on the right",
        )
