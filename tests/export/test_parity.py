"""What is compared with what: rows by kind, NaN, element types, limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from maskport.export.cases.draw import Case
from maskport.export.cases.layout import Layout
from maskport.export.cases.parity import TOLERANCES, Difference, differences, worst_valid
from maskport.export.cases.rows import rows_of
from maskport.models.masks import Causal, KeyPadding, Mask

IO = {
    "inputs": {
        "src": {"role": "tokens", "axes": ["batch", "seq", 4]},
        "attention_mask": {"role": "mask", "axes": ["batch", "seq"], "pad": 0},
    },
    "outputs": {"output": {"axes": ["batch", "seq", 4]}},
}
# Left padding, and a row without a token.
KEEP = np.array([[0, 0, 1], [0, 0, 0], [1, 1, 1]])
PADDED = Causal() & KeyPadding("attention_mask")


def case(masks: tuple[Mask, ...] = (PADDED,), axes: list[Any] | None = None) -> tuple[Layout, Case]:
    layout = Layout.from_io({**IO, "outputs": {"output": {"axes": axes or ["batch", "seq", 4]}}})
    inputs = {"src": np.zeros((3, 3, 4)), "attention_mask": KEEP}
    sizes = {"batch": 3, "seq": 3}
    return layout, Case("a", sizes, "left", inputs, rows_of(layout, sizes, inputs, masks))


def kinds(masks: tuple[Mask, ...], axes: list[Any], shape: tuple[int, ...]) -> dict[str, Any] | None:
    layout, one = case(masks, axes)
    found = one.rows.kinds(layout, tuple(axes), shape)
    return found and {kind: np.broadcast_to(where, shape) for kind, where in found.items()}


def test_the_mask_says_which_rows_have_no_key() -> None:
    found = kinds((PADDED,), ["batch", "seq", 4], (3, 3, 4))
    assert found is not None
    assert found["valid"][:, :, 0].tolist() == [[False, False, True], [False] * 3, [True] * 3]
    # Causal and left padding: what stands before the first token has no key.
    assert found["empty"][:, :, 0].tolist() == [[True, True, False], [True] * 3, [False] * 3]
    assert not found["padding"].any()


def test_without_a_mask_expression_padding_may_have_keys_where_there_is_a_token() -> None:
    found = kinds((), ["batch", "seq", 4], (3, 3, 4))
    assert found is not None
    assert found["padding"][:, :, 0].tolist() == [[True, True, False], [False] * 3, [False] * 3]
    assert found["empty"][:, :, 0].tolist() == [[False] * 3, [True] * 3, [False] * 3]


def test_rows_are_found_at_any_axis() -> None:
    weights = kinds((), ["batch", 2, "seq", "seq"], (3, 2, 3, 3))
    assert weights is not None
    valid = weights["valid"]
    assert valid[0, 0].tolist() == [[False, False, False], [False, False, False], [False, False, True]]
    turned = kinds((), [4, "seq", "batch"], (4, 3, 3))
    assert turned is not None
    assert turned["valid"][0].tolist() == [[False, False, True], [False, False, True], [True, False, True]]
    pooled = kinds((), ["batch", 4], (3, 4))
    assert pooled is not None
    assert pooled["valid"][:, 0].tolist() == [True, False, True]
    assert kinds((), [4], (4,)) is None


def test_a_row_of_a_decoder_needs_a_token_in_the_memory() -> None:
    io = {
        "inputs": {
            "tgt": {"role": "tokens", "axes": ["batch", "tgt_seq", 4]},
            "attention_mask": {"role": "mask", "axes": ["batch", "seq"], "pad": 0},
        },
        "outputs": {},
    }
    layout = Layout.from_io(io)
    assert (layout.batch, layout.tokens) == ("batch", ("seq", "tgt_seq"))
    inputs = {"tgt": np.zeros((3, 2, 4)), "attention_mask": KEEP}
    rows = rows_of(layout, {"batch": 3, "seq": 3, "tgt_seq": 2}, inputs, ())
    found = rows.kinds(layout, ("batch", "tgt_seq"), (3, 2))
    assert found is not None
    assert found["valid"].tolist() == [[True, True], [False, False], [True, True]]
    assert found["empty"].tolist() == [[False, False], [True, True], [False, False]]


def compared(change: Any, dtype: Any = np.float32, masks: tuple[Mask, ...] = ()) -> dict[str, Difference]:
    layout, one = case(masks)
    expected = np.ones((3, 3, 4), dtype)
    actual = expected.copy()
    change(actual, expected)
    return {found.rows: found for found in differences(layout, one, {"output": actual}, {"output": expected})}


def put(place: tuple[int, int], value: Any, *, into: int = 0) -> Any:
    return lambda *sides: sides[into].__setitem__((*place, 0), value)


VALID, PADDING, EMPTY = (0, 2), (0, 0), (1, 1)


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        (lambda *_: None, set()),
        (put(VALID, 1.1), {"valid"}),
        (put(PADDING, 1.1), {"padding"}),
        (put(EMPTY, 1.1), {"empty"}),
        (put(VALID, np.nan), {"valid"}),
        (put(VALID, np.nan, into=1), {"valid"}),
        (put(VALID, np.inf), {"valid"}),
        (put(VALID, 1 + 1e-6), set()),
    ],
    ids=["same", "valid", "padding", "empty", "NaN", "NaN of the reference", "infinite", "rounding"],
)
def test_each_kind_of_row_is_told_apart(change: Any, failed: set[str]) -> None:
    found = compared(change)
    assert set(found) == {"valid", "padding", "empty"}
    assert {rows for rows, difference in found.items() if not difference.ok} == failed


def test_nan_on_both_sides_and_equal_infinities_agree() -> None:
    def both(value: float) -> Any:
        return lambda *sides: [side.__setitem__((*VALID, 0), value) for side in sides]

    assert all(difference.ok for difference in compared(both(np.nan)).values())
    assert all(difference.ok for difference in compared(both(-np.inf)).values())


def test_the_limit_grows_with_the_values_and_integers_are_exact() -> None:
    def scaled(actual: np.ndarray, expected: np.ndarray) -> None:
        expected *= 1000
        actual[:] = expected + 0.01

    assert compared(scaled)["valid"].limit == pytest.approx(1000 * TOLERANCES["float32"].value)
    assert compared(scaled)["valid"].ok
    off_by_one = compared(put(VALID, 2), np.int64)["valid"]
    assert (off_by_one.limit, off_by_one.error, off_by_one.ok) == (0.0, 1.0, False)
    assert not compared(put(VALID, False), np.bool_)["valid"].ok


def test_the_worst_of_valid_rows() -> None:
    assert worst_valid(list(compared(put(PADDING, 9.0)).values())) == 0.0
    assert np.isnan(worst_valid(list(compared(put(VALID, np.nan)).values())))
    assert worst_valid([]) is None
