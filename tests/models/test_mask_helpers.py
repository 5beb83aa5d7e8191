"""Mask tensors made by hand, in numpy and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from maskport.models import (
    Adjacency,
    attend_from_additive,
    attend_from_key_padding_mask,
    attend_from_masked,
    graph_mask,
    local_mask,
    look_ahead_mask,
    padding_mask_from_ids,
    padding_mask_from_lengths,
)


def in_torch(value: Any) -> Any:
    return pytest.importorskip("torch").as_tensor(value)


both = pytest.mark.parametrize("array", [np.asarray, in_torch], ids=["numpy", "torch"])
Array = Callable[[Any], Any]


@both
def test_padding_from_ids(array: Array) -> None:
    ids = array([[4, 0, 9], [1, 1, 0]])
    assert padding_mask_from_ids(ids).tolist() == [[True, False, True], [True, True, False]]
    assert padding_mask_from_ids(ids, pad_idx=1).tolist() == [[True] * 3, [False, False, True]]


@both
def test_padding_from_lengths(array: Array) -> None:
    lengths = array([0, 2, 3])
    assert padding_mask_from_lengths(lengths).tolist() == [[False] * 3, [True, True, False], [True] * 3]
    left = padding_mask_from_lengths(lengths, 4, side="left")
    assert left.tolist() == [[False] * 4, [False, False, True, True], [False, True, True, True]]
    assert type(left) is type(lengths)
    with pytest.raises(ValueError, match=r"from 0 to max_len=2; got \[0, 2, 3\]"):
        padding_mask_from_lengths(lengths, 2)
    with pytest.raises(ValueError, match="got 'both'"):
        padding_mask_from_lengths(lengths, side="both")
    assert tuple(padding_mask_from_lengths(lengths[:0]).shape) == (0, 0)


def test_look_ahead() -> None:
    assert look_ahead_mask(3).tolist() == np.tri(3, dtype=bool).tolist()
    strict = look_ahead_mask(3, include_self=False)
    assert strict.tolist() == np.tri(3, k=-1, dtype=bool).tolist()
    assert not strict[0].any()
    assert look_ahead_mask(2, past_len=3).tolist() == np.tri(2, 5, 3, dtype=bool).tolist()
    assert look_ahead_mask(2, 4).tolist() == np.tri(2, 4, dtype=bool).tolist()
    torch = pytest.importorskip("torch")
    assert isinstance(look_ahead_mask(3, device="cpu"), torch.Tensor)


def test_local() -> None:
    assert local_mask(4, 1).sum() == 10
    assert local_mask(4, 1, 0).tolist() == (np.tri(4, dtype=bool) & ~np.tri(4, k=-2, dtype=bool)).tolist()
    assert local_mask(2, 0, -1, k_len=3).tolist() == [[True, True, True], [False, True, True]]


@both
def test_graph(array: Array) -> None:
    edges = array([[0, 1], [2, 2]])
    assert graph_mask(edges, 3).astype(int).tolist() if array is np.asarray else True
    assert np.asarray(graph_mask(edges, 3)).astype(int).tolist() == [[[1, 0, 1], [0, 1, 1], [1, 1, 1]]]
    directed = graph_mask(edges, 3, directed=True, self_loops=False)
    assert np.asarray(directed).astype(int).tolist() == [[[0, 0, 0], [0, 0, 0], [1, 1, 0]]]
    assert Adjacency("g").dense(3, 3, g=directed).shape == (1, 1, 3, 3)
    assert np.asarray(graph_mask(edges[:, :0], 2)).astype(int).tolist() == [[[1, 0], [0, 1]]]
    with pytest.raises(ValueError, match=r"got shape \[2\]"):
        graph_mask(edges[0], 3)
    with pytest.raises(ValueError, match="nodes are 0 to 1; got 0 to 2"):
        graph_mask(edges, 2)


@both
def test_other_polarities(array: Array) -> None:
    assert attend_from_masked(array([[True, False]])).tolist() == [[False, True]]
    with pytest.raises(TypeError, match=r"is bool; got .*int64"):
        attend_from_masked(array([[1, 0]]))
    assert attend_from_additive(array([[0.0, -np.inf, -1e9, -1e4]])).tolist() == [[True, False, False, False]]
    with pytest.raises(ValueError, match="It is a bias, not a mask"):
        attend_from_additive(array([[0.0, -10.0]]))
    with pytest.raises(TypeError, match=r"floating-point; got .*bool"):
        attend_from_additive(array([[True]]))
    assert attend_from_key_padding_mask(array([[False, True]])).tolist() == [[True, False]]
    assert attend_from_key_padding_mask(array([[0.0, -np.inf]])).tolist() == [[True, False]]
