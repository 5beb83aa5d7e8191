"""Mask tensors that people make by hand: from token ids, lengths, edges, and from other conventions.

Each takes and returns numpy arrays, or torch tensors where it is given one. True means attend.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .mask_grid import is_torch
from .masks import Causal, Window, past

__all__ = [
    "attend_from_additive",
    "attend_from_key_padding_mask",
    "attend_from_masked",
    "graph_mask",
    "local_mask",
    "look_ahead_mask",
    "padding_mask_from_ids",
    "padding_mask_from_lengths",
]

# An additive mask's fill is at most this: every score is far above it, so the softmax of a filled position is 0.
LARGEST_FILL = -1e4


def padding_mask_from_ids(input_ids: Any, pad_idx: int = 0) -> Any:
    """Return which tokens are real: `input_ids != pad_idx`, bool [B, K], for `KeyPadding`.

    Examples
    --------
    >>> padding_mask_from_ids(np.array([[7, 5, 0]]))
    array([[ True,  True, False]])
    """
    return _array(input_ids) != pad_idx


def padding_mask_from_lengths(lengths: Any, max_len: int | None = None, *, side: str = "right") -> Any:
    """Return which tokens are real, bool [B, K], where row b has `lengths[b]` of them.

    Parameters
    ----------
    lengths : array of int, [B]
        Number of real tokens.
    max_len : int, optional
        K; the largest length unless given.
    side : {"right", "left"}
        Where the padding is.

    Raises
    ------
    ValueError
        If a length is negative or larger than `max_len`, or `side` is another word.

    Examples
    --------
    >>> padding_mask_from_lengths(np.array([1, 3])).astype(int)
    array([[1, 0, 0],
           [1, 1, 1]])
    """
    lengths = _array(lengths)
    if side not in ("right", "left"):
        raise ValueError(f"side is 'right' or 'left': where the padding is; got {side!r}")
    longest = int(lengths.max()) if lengths.shape[0] else 0
    max_len = longest if max_len is None else max_len
    if longest > max_len or (lengths < 0).any():
        raise ValueError(f"lengths are from 0 to max_len={max_len}; got {lengths.tolist()}")
    positions = _arange(max_len, lengths)[None, :]
    return positions < lengths[:, None] if side == "right" else positions >= max_len - lengths[:, None]


def look_ahead_mask(
    q_len: int, k_len: int | None = None, *, include_self: bool = True, past_len: int = 0, device: Any = None
) -> Any:
    """Return the mask against looking ahead, bool [Q, K]: `Causal()` as an array.

    Parameters
    ----------
    q_len, k_len : int
        Number of queries and keys; `k_len` is `q_len + past_len` unless given.
    include_self : bool
        Whether a query attends its own position. The strict form, False, leaves the first query without any key:
        its attention is zero in Maskport and in ONNX, NaN where a softmax sees only -inf.
    past_len : int
        Number of keys that come before the first query.
    device : torch.device or str, optional
        Return a torch tensor on this device.

    Examples
    --------
    >>> look_ahead_mask(3, include_self=False).astype(int)
    array([[0, 0, 0],
           [1, 0, 0],
           [1, 1, 0]])
    """
    mask = Causal(past if include_self else past - 1)
    return mask.dense(q_len, q_len + past_len if k_len is None else k_len, past_len, device=device)[0, 0]


def local_mask(q_len: int, left: int, right: int | None = None, *, k_len: int | None = None, device: Any = None) -> Any:
    """Return a sliding window, bool [Q, K]: a query attends itself and `left` neighbours before, `right` after it.

    `right` is `left` unless given; -1 is unbounded. It is `Window(left, right)` as an array.

    Examples
    --------
    >>> local_mask(4, 1).astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 1, 0],
           [0, 1, 1, 1],
           [0, 0, 1, 1]])
    """
    mask = Window(left, left if right is None else right)
    return mask.dense(q_len, q_len if k_len is None else k_len, device=device)[0, 0]


def graph_mask(edges: Any, num_nodes: int, *, directed: bool = False, self_loops: bool = True) -> Any:
    """Return the adjacency of a graph, bool [1, N, N], for `Adjacency`: a node attends its neighbours.

    Parameters
    ----------
    edges : array of int, [2, E]
        Sources in row 0 and targets in row 1 (the `edge_index` of PyTorch Geometric).
    num_nodes : int
        N.
    directed : bool
        If True a target attends its sources only; else both ends attend each other.
    self_loops : bool
        Whether each node attends itself; without, a node that has no edge has no key.

    Raises
    ------
    ValueError
        If `edges` is not [2, E], or names a node that is not there.

    Examples
    --------
    >>> graph_mask(np.array([[0], [2]]), 3).astype(int)
    array([[[1, 0, 1],
            [0, 1, 0],
            [1, 0, 1]]])
    """
    edges = _array(edges)
    if len(edges.shape) != 2 or edges.shape[0] != 2:
        raise ValueError(f"edges are [2, E]: sources, then targets; got shape {list(edges.shape)}")
    if edges.shape[1] and (int(edges.min()) < 0 or int(edges.max()) >= num_nodes):
        raise ValueError(f"nodes are 0 to {num_nodes - 1}; got {int(edges.min())} to {int(edges.max())}")
    positions = _arange(num_nodes, edges)
    attend = (positions[:, None] == positions[None, :]) & self_loops
    source, target = edges
    attend[target, source] = True
    if not directed:
        attend[source, target] = True
    return attend[None]


def attend_from_masked(masked: Any) -> Any:
    """Turn a bool mask whose True means masked (nn.MultiheadAttention's `attn_mask`) into one whose True means attend.

    Raises
    ------
    TypeError
        If it is not bool: an int or float mask has another meaning.
    """
    masked = _array(masked)
    if "bool" not in str(masked.dtype):
        raise TypeError(f"a mask of True = masked is bool; got {masked.dtype}. A float mask: attend_from_additive")
    return ~masked


def attend_from_additive(additive: Any) -> Any:
    """Turn an additive float mask (0 attends, -inf or a very negative number doesn't) into a bool one.

    Raises
    ------
    TypeError
        If it is not floating-point.
    ValueError
        If a value is neither 0 nor at most -1e4: then it is a bias, and a bool mask would lose it.
    """
    additive = _array(additive)
    if "float" not in str(additive.dtype):
        raise TypeError(f"an additive mask is floating-point; got {additive.dtype}. A bool mask: attend_from_masked")
    attend = additive == 0
    if not bool((attend | (additive <= LARGEST_FILL)).all()):
        raise ValueError(
            f"an additive mask holds 0 and fills of {LARGEST_FILL:g} or less; this one also holds other values. "
            "It is a bias, not a mask: add it to the scores"
        )
    return attend


def attend_from_key_padding_mask(key_padding_mask: Any) -> Any:
    """Turn nn.MultiheadAttention's `key_padding_mask` [B, K] into what `KeyPadding` takes.

    There True means padding, or a float is added to the scores.
    """
    key_padding_mask = _array(key_padding_mask)
    additive = "float" in str(key_padding_mask.dtype)
    return attend_from_additive(key_padding_mask) if additive else attend_from_masked(key_padding_mask)


def _array(value: Any) -> Any:
    return value if is_torch(value) else np.asarray(value)


def _arange(length: int, like: Any) -> Any:
    if is_torch(like):
        import torch

        return torch.arange(length, device=like.device)
    return np.arange(length)
