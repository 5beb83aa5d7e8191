"""Masks at chosen points, and with other names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from maskport.models import Causal, Dense, K, KeyPadding, Mask, Prefix, Q, Row, Segments, Window

from .mask_strategies import masks

SIZES = {"b": 2, "h": 3}


@given(masks(), st.integers(1, 6), st.integers(0, 4), st.integers(0, 3), st.randoms(use_true_random=False))
def test_chosen_points_are_those_of_the_grid(mask: Mask, q_len: int, more: int, past: int, random: object) -> None:
    lengths = SIZES | {"q": q_len, "k": q_len + past + more}
    draw = np.random.default_rng(random.randrange(1000))  # type: ignore[attr-defined]
    tensors = {
        name: draw.integers(0, 3, [lengths[axis] for axis in spec.dims]).astype(bool if spec.rank == 4 else np.int64)
        for name, spec in mask.tensors.items()
    }
    q, k = draw.integers(0, q_len, 4), draw.integers(0, lengths["k"], 5)
    grid = np.asarray(mask.dense(q_len, lengths["k"], past, **tensors))
    grid = np.broadcast_to(grid, (*grid.shape[:2], q_len, lengths["k"]))
    chosen = mask.at(q, k, q_len, lengths["k"], past, **tensors)
    np.testing.assert_array_equal(chosen, grid[:, :, q][..., k])


def test_lengths_may_be_larger_than_any_grid() -> None:
    positions = [0, 2**60 - 2, 2**60 - 1, 2**60]
    chosen = Window(2**60 - 1, 0).at(positions, positions, 2**61, 2**61)
    assert chosen[0, 0].astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]]
    broadcast = np.broadcast_to(True, (1, 1, 2**30, 2**30))
    assert Dense("d").at([0, 2**30 - 1], [5], 2**30, 2**30, d=broadcast).all()


def test_what_is_given_to_chosen_points_is_checked() -> None:
    with pytest.raises(TypeError, match="needs m "):
        KeyPadding("m").at([0], [0], 1, 1)
    with pytest.raises(TypeError, match="got dtype float"):
        KeyPadding("m").at([0], [0], 1, 1, m=np.ones((1, 1)))
    with pytest.raises(ValueError, match="got shape"):
        KeyPadding("m").at([0], [0], 1, 1, m=np.ones((1, 2), int))


def test_renaming_touches_names_alone() -> None:
    mask = (Causal(Row("n") + K - Q) & KeyPadding("m", 1)) | ~Segments("m", "padding") | Prefix("n") + 2
    renamed = mask.rename({"n": "rows", "m": "n", "padding": "m", "causal": "x"})
    assert renamed == (Causal(Row("rows") + K - Q) & KeyPadding("n", 1)) | ~Segments("n", "m") | Prefix("rows") + 2
    assert KeyPadding("m").rename({}) == KeyPadding("m")
    with pytest.raises(ValueError, match="one name is one tensor"):
        (KeyPadding("m") & Prefix("n")).rename({"n": "m"})
