"""com.microsoft.RemovePadding, which only CUDA runs."""

from __future__ import annotations

import numpy as np

from .twin import Twin

__all__ = ["RemovePadding"]


class RemovePadding(Twin):
    """The first ``sequence_token_count[b]`` tokens of each row of [B, S, hidden], one after the other.

    Gives the tokens [T, hidden]; the offsets of all tokens, then those of padding, as [B, S]; the cumulated counts
    [B + 1]; the largest count [1].
    """

    def _run(self, input: np.ndarray, sequence_token_count: np.ndarray) -> tuple[np.ndarray, ...]:
        batch, length, hidden = input.shape
        counts = sequence_token_count
        self.require(
            counts.shape == (batch,) and counts.min(initial=0) >= 0 and counts.max(initial=0) <= length,
            f"expected sequence_token_count of [{batch}], from 0 to {length}; got {counts}",
        )
        is_token = (np.arange(length) < counts[:, None]).reshape(-1)
        offsets = np.concatenate([np.flatnonzero(is_token), np.flatnonzero(~is_token)])
        return (
            input.reshape(-1, hidden)[is_token],
            offsets.reshape(batch, length).astype(np.int32),
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            np.array([counts.max(initial=0)], np.int32),
        )
