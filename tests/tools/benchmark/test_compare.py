"""Valid rows are compared, padding is not."""

from __future__ import annotations

import numpy as np
from maskport.export.cases.layout import Layout
from maskport.tools.benchmark.compare import Comparison

from .test_rows import IO

EXPECTED = np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float32)
BATCH = {"x": EXPECTED, "attention_mask": np.array([[1, 1, 0, 0], [1, 1, 1, 1]])}
COMPARISON = Comparison(Layout.from_io(IO), BATCH, EXPECTED)


def changed(row: int, token: int, value: float) -> np.ndarray:
    output = EXPECTED.copy()
    output[row, token, 0] += value
    return output


def test_rounding_is_right() -> None:
    found = COMPARISON.found(changed(0, 1, 1e-6))
    assert not found.wrong
    assert found.error is not None
    assert 0 < found.error < 1e-5


def test_a_valid_row_that_differs_is_wrong() -> None:
    found = COMPARISON.found(changed(0, 1, 0.5))
    assert found.error == np.float32(0.5)
    assert "valid rows differ" in found.wrong


def test_a_padding_row_may_hold_anything() -> None:
    assert not COMPARISON.found(changed(0, 2, 7.0)).wrong
    assert not COMPARISON.found(changed(0, 3, np.nan)).wrong


def test_nan_and_another_shape_are_wrong_and_have_no_error() -> None:
    assert COMPARISON.found(changed(1, 3, np.nan)).error is None
    assert COMPARISON.found(changed(1, 3, np.nan)).wrong
    found = COMPARISON.found(EXPECTED[:, :3])
    assert found.error is None
    assert found.wrong == "its output is [2, 3, 3], the reference's [2, 4, 3]"
