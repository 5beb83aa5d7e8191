"""The integer masks of MultiHeadAttention and Attention."""

from __future__ import annotations

import numpy as np

from .twin import Twin

__all__ = ["aligned_causal", "filled", "keys_attended"]


def keys_attended(
    twin: Twin, mask: np.ndarray, batch: int, queries: int, keys: int, *, starts: bool = False
) -> np.ndarray:
    """Return a mask as bool, broadcastable to [B, N, S, T].

    Its shape tells what it holds: [B] lengths; [2B] ends, then starts, of an operator that has them; [3B + 2]
    lengths, then cumulative lengths of queries and of keys; [B, T] or [B, S, T] 1 for a key that is attended.

    The cumulative lengths must say that rows are padded to one length. Kernels on the CPU read the lengths alone.
    """
    if mask.ndim == 1 and len(mask) in (batch, 3 * batch + 2, *([2 * batch] if starts else ())):
        ends, rest = mask[:batch].reshape(batch, 1), mask[batch:]
        column = np.arange(keys)
        attended = column < ends
        if starts and rest.shape[0] == batch:
            attended &= column >= rest.reshape(batch, 1)
        elif rest.shape[0]:
            padded = np.concatenate([np.arange(batch + 1) * length for length in (queries, keys)])
            twin.require(np.array_equal(rest, padded), "expected cumulative lengths of rows padded to one length")
        return attended[:, None, None, :]
    if mask.shape == (batch, keys):
        return mask[:, None, None, :] > 0
    twin.require(
        mask.shape == (batch, queries, keys),
        f"expected a mask of [B], [3B + 2], [B, T] or [B, S, T], B={batch}, S={queries}, T={keys}; got {mask.shape}",
    )
    return mask[:, None] > 0


def filled(attended: np.ndarray, fill: float, dtype: np.dtype) -> np.ndarray:
    """Return what is added to the scores: ``mask_filter_value`` for a key that isn't attended.

    So a row that attends none is the softmax of the unmasked scores, as it is on the CPU. It has no meaning
    elsewhere: CUDA has kernels that skip such keys.
    """
    return np.where(attended, 0, fill).astype(dtype)


def aligned_causal(twin: Twin, queries: int, keys: int, past: int) -> np.ndarray:
    """Return [S, T] for ``unidirectional``: query q attends key k <= q + past.

    With more than one query over keys of another length, the CPU aligns the first and lets the last query see every
    key, CUDA aligns the last: that is refused.
    """
    twin.require(
        queries == 1 or keys == queries + past,
        f"unidirectional with {queries} queries over {keys} keys is aligned differently on the CPU and on CUDA",
    )
    return np.arange(keys) <= np.arange(queries)[:, None] + keys - queries
