"""The sizes that are measured: how they are written, and how much of them is real."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.export import OptimizeError, Workload


def test_shapes_are_read() -> None:
    assert Workload.parse(["16x128", "1x32"], 0.5) == Workload(((16, 128), (1, 32)), 0.5)
    assert Workload.parse([]) == Workload()


@pytest.mark.parametrize("text", ["16", "16x", "0x8", "ax8", "8x8x8", "-1x8"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(OptimizeError, match="give batch and length, such as 16x128"):
        Workload.parse([text])


@pytest.mark.parametrize("fill", [0.0, -1.0, 1.5, float("nan")])
def test_a_fill_that_is_no_share_is_refused(fill: float) -> None:
    with pytest.raises(OptimizeError, match="give the share of real tokens"):
        Workload(fill=fill)


def test_no_shape_is_refused() -> None:
    with pytest.raises(OptimizeError, match="of at least 1"):
        Workload(shapes=())


@pytest.mark.parametrize(("batch", "length"), [(1, 32), (2, 5), (16, 128), (64, 32)])
@pytest.mark.parametrize("fill", [0.3, 0.5, 0.9, 1.0])
def test_the_share_of_real_tokens_is_as_asked(batch: int, length: int, fill: float) -> None:
    keep = Workload(fill=fill).keep(batch, length)
    assert keep.shape == (batch, length)
    # The longest row is whole, so that a few rows can't hold less.
    least = fill if batch == 1 else max(fill, (1 + (batch - 1) / length) / batch)
    assert keep.mean() == pytest.approx(least, abs=max(0.05, 0.6 / length))
    assert keep[:, 0].all()
    assert batch == 1 or keep.all(1).any()
    assert (np.diff(keep.astype(int), axis=1) <= 0).all()
