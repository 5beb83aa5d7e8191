"""The numbers for "not attended" hide a key and never overflow in their element type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from maskport.export.lowering.numbers import channel_factor, fill

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
# Scores that a model may have in a type.
LARGEST_SCORE = {"float32": 1e9, "float16": 1.4e4, "bfloat16": 1e9}


@pytest.mark.parametrize("dtype", TYPES)
def test_a_fill_is_finite_beside_any_score_and_hides(dtype: str) -> None:
    element, score = TYPES[dtype], LARGEST_SCORE[dtype]
    hidden = element(fill(dtype)) + element(score)
    assert np.isfinite(np.float32(element(fill(dtype)) - element(score)))
    assert np.exp(np.float32(hidden) - np.float32(element(-score))) == 0


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("scale", [1e-3, 0.0442, 0.125, 1.0, 8.0])
def test_a_channel_adds_a_fill(dtype: str, scale: float) -> None:
    factor = channel_factor(scale, dtype)
    assert factor is not None
    held = float(TYPES[dtype](factor))
    assert np.isfinite(held)
    assert -scale * held * held == pytest.approx(fill(dtype), rel=0.02)
    if dtype == "float16":
        assert scale * held * held < 6.5e4


def test_where_no_number_fits_there_is_none() -> None:
    assert channel_factor(1e-6, "float16") is None
    assert channel_factor(0.0, "float32") is None
    assert channel_factor(-1.0, "float32") is None
