"""Apply a boolean mask to attention so that nothing becomes NaN: not in PyTorch, not in the exported graph.

Shape suffixes: B batch, H query heads, G key/value heads (H % G == 0), S queries, T keys, D and V head sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .masks import Full, Mask, Window

__all__ = ["Attend", "make_attend", "masked_softmax", "scaled_dot_product_attention"]


class Attend(NamedTuple):
    """A mask made dense, with the rows that have a key: made once per forward and shared by all layers.

    Attributes
    ----------
    mask : Tensor
        bool, broadcastable to [B, H, S, T], True means attend; its last two sizes are S and T.
    has_key : Tensor or None
        bool, broadcastable to [B, H, S, 1]: the rows that attend at least one key. None if every row does.
    """

    mask: Tensor
    has_key: Tensor | None

    @classmethod
    def of(cls, mask: Tensor, q_len: int, k_len: int, *, empty_rows: bool = True) -> Attend:
        """Wrap a bool mask that broadcasts to [B, H, q_len, k_len].

        Parameters
        ----------
        mask : Tensor
            bool, True means attend; of rank 2 or 4.
        q_len, k_len : int
            The numbers of queries and keys, S and T.
        empty_rows : bool
            Whether a row may have no key. False saves the guard; such a row then holds whatever softmax
            gives.

        Raises
        ------
        TypeError
            If `mask` is not bool: an additive or inverted mask would be read the wrong way round.
        ValueError
            If its rank is 3: [B, S, T] would be taken for heads.
        """
        if mask.dtype != torch.bool:
            raise TypeError(
                f"attend is bool, True means attend; got {mask.dtype} of shape {list(mask.shape)}. Convert it with "
                "attend_from_additive or attend_from_masked"
            )
        if mask.dim() not in (2, 4):
            raise ValueError(f"attend is [S, T] or broadcasts to [B, H, S, T] at rank 4; got {list(mask.shape)}")
        has_key = mask.any(-1, keepdim=True) if empty_rows else None
        if mask.shape[-2:] != (q_len, k_len):
            # ONNX Runtime's Attention broadcasts a mask over batch and heads, but not over queries and keys.
            mask = mask.expand(*mask.shape[:-2], q_len, k_len)
        return cls(mask, has_key)


def make_attend(
    mask: Mask,
    q_len: int,
    k_len: int,
    past: int = 0,
    *,
    cross: bool = False,
    device: torch.device | None = None,
    tensors: Mapping[str, Tensor] | None = None,
) -> Attend | None:
    """Make a mask expression dense.

    Parameters
    ----------
    mask : Mask
        The expression.
    q_len, k_len, past : int
        The numbers of queries and keys, and the keys that come before the first query.
    cross : bool
        Whether the keys are another sequence. In self-attention a mask that lets each query attend its own
        position can't have an empty row, and needs no guard.
    device : torch.device, optional
        Where the mask is made.
    tensors : mapping of str to Tensor, optional
        The tensors that the mask names.

    Returns
    -------
    Attend or None
        None for a mask that attends everything.
    """
    if mask == Full():
        return None
    dense = mask.dense(q_len, k_len, past, device=device, **(tensors or {}))
    return Attend.of(dense, q_len, k_len, empty_rows=cross or not Window(0, 0).implies(mask))


def masked_softmax(scores: Tensor, attend: Tensor | None, dim: int = -1) -> Tensor:
    """Softmax over the attended scores; a row without any is zero.

    The fill replaces a score and is never added to it, and half types are computed in float32, so that no
    score overflows to -inf: a row of -inf would be NaN, and NaN times a weight of zero spreads to other rows.

    Parameters
    ----------
    scores : Tensor
        Floating point, any shape.
    attend : Tensor or None
        bool, broadcastable to `scores`, True means attend. None attends everything.
    dim : int
        The dimension of the keys.

    Returns
    -------
    Tensor
        Weights of the shape and dtype of `scores`: zero where `attend` is False, each row's sum 1, or 0
        without keys.

    Examples
    --------
    >>> scores = torch.zeros(2, 2, dtype=torch.float16)
    >>> masked_softmax(scores, torch.tensor([[True, False], [False, False]])).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if attend is None:
        return torch.softmax(wide, dim).to(scores.dtype)
    weights = torch.softmax(torch.where(attend, wide, torch.finfo(wide.dtype).min), dim)
    return torch.where(attend, weights, 0.0).to(scores.dtype)


def scaled_dot_product_attention(
    query_BHSD: Tensor,
    key_BGTD: Tensor,
    value_BGTV: Tensor,
    attend: Attend | Tensor | None = None,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    dropout_p: float = 0.0,
    need_weights: bool = False,
    empty_rows: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Attention of H query heads over G key/value heads, where a row without keys is zero.

    `torch.nn.functional.scaled_dot_product_attention` does the work unless weights or a soft cap are asked
    for. Its rows without keys are zero in eager PyTorch but the mean of the values once exported at opset 18
    to 22: the guard here makes them zero at every opset.

    Parameters
    ----------
    query_BHSD, key_BGTD, value_BGTV : Tensor
        float16, bfloat16, float32 or float64. H is a multiple of G: each key/value head serves H // G query
        heads.
    attend : Attend or Tensor, optional
        The mask, True means attend: ready, or a bool tensor broadcastable to [B, H, S, T].
    scale : float, optional
        Factor of the scores, 1 / sqrt(D) by default.
    softcap : float
        If not 0, scores become `softcap * tanh(scores / softcap)` before they are masked (Gemma 2).
    dropout_p : float
        Share of the weights to drop. The caller passes 0 outside of training.
    need_weights : bool
        Whether to return the weights.
    empty_rows : bool
        Whether a row of a bool tensor `attend` may have no key; see `Attend.of`.

    Returns
    -------
    output : Tensor
        [B, H, S, V].
    weights : Tensor or None
        [B, H, S, T] before dropout, if asked for.

    Raises
    ------
    ValueError
        If H is no multiple of G.
    TypeError
        If `attend` is not bool.
    """
    heads, kv_heads = query_BHSD.shape[1], key_BGTD.shape[1]
    # torch.export compares symbols, and torch's attention takes no SymBool.
    grouped = bool(heads != kv_heads)
    if grouped and heads % kv_heads:
        raise ValueError(f"{heads} query heads can't share {kv_heads} key/value heads: give a divisor of {heads}")
    if isinstance(attend, Tensor):
        attend = Attend.of(attend, query_BHSD.shape[-2], key_BGTD.shape[-2], empty_rows=empty_rows)
    mask, has_key = (None, None) if attend is None else attend

    if not need_weights and not softcap:
        output = F.scaled_dot_product_attention(
            query_BHSD, key_BGTD, value_BGTV, mask, dropout_p, scale=scale, enable_gqa=grouped
        )
        return (output if has_key is None else torch.where(has_key, output, 0.0)), None

    # Fused kernels keep half scores in float32, so this does, too: 200 * 200 * 64 is infinite in float16.
    wide = torch.promote_types(query_BHSD.dtype, torch.float32)
    key_BHTD, value_BHTV = key_BGTD, value_BGTV
    if grouped:
        key_BHTD, value_BHTV = (x.repeat_interleave(heads // kv_heads, 1) for x in (key_BGTD, value_BGTV))
    scores = query_BHSD.to(wide) @ key_BHTD.to(wide).mT
    scores = scores * (query_BHSD.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    weights = masked_softmax(scores, mask).to(value_BGTV.dtype)
    return F.dropout(weights, dropout_p) @ value_BHTV, weights if need_weights else None
