"""com.microsoft.RestorePadding, which only CUDA runs."""

from __future__ import annotations

import numpy as np

from .twin import Twin

__all__ = ["RestorePadding"]


class RestorePadding(Twin):
    """Tokens [T, hidden] at the first T places that ``token_offset`` [B, S] lists, zeros at the others."""

    def _run(self, input: np.ndarray, token_offset: np.ndarray) -> tuple[np.ndarray]:
        (batch, length), (tokens, hidden) = token_offset.shape, input.shape
        places = token_offset.reshape(-1)
        self.require(
            tokens <= batch * length and np.array_equal(np.sort(places), np.arange(batch * length)),
            f"expected token_offset to list each of {batch} x {length} places once, the {tokens} tokens' first",
        )
        output = np.zeros((batch * length, hidden), input.dtype)
        output[places[:tokens]] = input
        return (output.reshape(batch, length, hidden),)
