"""Attention itself, as every attention operator of ONNX Runtime computes it.

B batch, N heads, G heads of keys and values, S queries, T keys, D head size.
"""

from __future__ import annotations

import numpy as np

__all__ = ["attend", "bias_fits"]


def attend(
    query_BNSD: np.ndarray,
    key_BGTD: np.ndarray,
    value_BGTD: np.ndarray,
    scale: float | None,
    *,
    allowed: np.ndarray | None = None,
    added: np.ndarray | None = None,
    softcap: float = 0.0,
    sink: np.ndarray | None = None,
) -> np.ndarray:
    """Return the weighted values [B, N, S, D].

    Parameters
    ----------
    query_BNSD, key_BGTD, value_BGTD
        float32 or float64; head n of the queries reads head ``n // (N // G)`` of the keys.
    scale
        Of the products; None or 0 is ``1 / sqrt(D)``.
    allowed
        Bool, broadcastable to [B, N, S, T]: keys that take part. A row with none is zero.
    added
        Broadcastable to [B, N, S, T], added to the scores after the softcap. A row of which all that take part
        become -inf is NaN.
    softcap
        Scores become ``softcap * tanh(scores / softcap)``; 0 is none.
    sink
        [N]: a score for each head that takes its share of the weights, and adds no value.
    """
    groups = query_BNSD.shape[1] // key_BGTD.shape[1]
    key, value = (np.repeat(array, groups, axis=1) for array in (key_BGTD, value_BGTD))
    scores = query_BNSD @ key.swapaxes(-1, -2) * query_BNSD.dtype.type(scale or query_BNSD.shape[-1] ** -0.5)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if added is not None:
        scores = scores + added
    takes_part = np.broadcast_to(True if allowed is None else allowed, scores.shape)
    peak = scores.max(axis=-1, keepdims=True, where=takes_part, initial=-np.inf)
    sinks = None if sink is None else sink.astype(scores.dtype).reshape(1, -1, 1, 1)
    if sinks is not None:
        peak = np.maximum(peak, sinks)
    weights = np.where(takes_part, np.exp(scores - peak), 0)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - peak)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total != 0) @ value


def bias_fits(bias: np.ndarray | None, batch: int, heads: int, queries: int, keys: int) -> bool:
    """Whether an attention bias is [B or 1, N or 1, S, T]: ONNX Runtime broadcasts neither S nor T."""
    return bias is None or (
        bias.ndim == 4
        and bias.shape[0] in (1, batch)
        and bias.shape[1] in (1, heads)
        and bias.shape[2:] == (queries, keys)
    )
