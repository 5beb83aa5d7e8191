"""The padding patterns: what each masks, and that no pattern counts twice."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.export.cases.patterns import MORE_NAMES, padding_patterns


@pytest.fixture(params=range(5))
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(request.param)


def test_each_pattern_masks_what_its_name_says(rng: np.random.Generator) -> None:
    patterns = padding_patterns(4, 9, rng)
    assert tuple(patterns) == MORE_NAMES
    assert patterns["ones"].all()
    steps = {name: np.diff(mask.astype(int), axis=1) for name, mask in patterns.items()}
    assert (steps["right"] <= 0).all()
    assert (steps["left"] >= 0).all()
    assert not (steps["holes"] <= 0).all()
    assert not (steps["holes"] >= 0).all()
    assert (patterns["one token"].sum(axis=1) == 1).all()
    assert patterns["no token"].any(axis=1).tolist() == [False, True, True, True]
    assert not patterns["nothing"].any()
    for row, name in enumerate(("right", "left", "holes", "right")):
        assert (patterns["mixed"][row] == patterns[name][row]).all()
    for name in ("right", "left", "holes"):
        assert patterns[name].any(axis=1).all()
        assert not patterns[name].all()


def test_a_pattern_that_masks_nothing_is_left_out(rng: np.random.Generator) -> None:
    assert tuple(padding_patterns(1, 1, rng)) == ("ones", "no token")


def test_no_two_patterns_are_equal(rng: np.random.Generator) -> None:
    for batch, length in [(1, 2), (2, 2), (1, 3)]:
        masks = [mask.tobytes() for mask in padding_patterns(batch, length, rng).values()]
        assert len(set(masks)) == len(masks)
