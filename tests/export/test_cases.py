"""The drawn cases: repeatable, of the example's values and types, and shaped as their names say."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.export.cases.draw import SIZES, Size, dense_mask, draw_case, draw_cases, lengthened, sizes_of
from maskport.export.cases.layout import Layout, Sum
from maskport.export.cases.patterns import NAMES

LAYOUT = Layout.from_io(
    {
        "inputs": {
            "input_ids": {"role": "tokens", "axes": ["batch", "seq"]},
            "position_ids": {"role": "positions", "axes": ["batch", "seq"]},
            "attention_mask": {"role": "mask", "axes": ["batch", "seq"], "pad": 0},
            "decoder_mask": {"role": "mask", "axes": ["batch", "decoder_seq"], "pad": 1},
            "image": {"role": "other", "axes": ["batch", 3, "height"]},
        },
        "outputs": {},
    }
)
EXAMPLES = {
    "input_ids": np.array([[5, 7, 9], [9, 7, 5]]),
    "position_ids": np.array([[0, 1, 2], [0, 1, 2]], np.int32),
    "attention_mask": np.ones((2, 3), np.float32),
    "decoder_mask": np.zeros((2, 4), bool),
    "image": np.zeros((2, 3, 8), np.float16),
}


def test_every_size_and_pattern_is_drawn_once() -> None:
    cases = list(draw_cases(LAYOUT, EXAMPLES))
    names = [case.name for case in cases]
    assert len(set(names)) == len(names)
    assert "batch=3,seq=17,decoder_seq=11,height=11,mask=left" in names
    assert {case.pattern for case in cases} == set(NAMES)
    assert {(case.sizes["batch"], case.sizes["seq"]) for case in cases} == {size[:2] for size in SIZES}


@pytest.mark.parametrize("pattern", NAMES)
def test_a_case_has_the_types_and_values_of_the_example(pattern: str) -> None:
    sizes = sizes_of(LAYOUT, Size(3, 17, 11))
    case = draw_case(LAYOUT, EXAMPLES, (), sizes, pattern)
    again = draw_case(LAYOUT, EXAMPLES, (), sizes, pattern)
    other = draw_case(LAYOUT, EXAMPLES, (), sizes, pattern, seed=1)
    assert list(case.inputs) == list(LAYOUT.inputs)
    assert {name: array.dtype for name, array in case.inputs.items()} == {n: a.dtype for n, a in EXAMPLES.items()}
    assert all(np.array_equal(array, again.inputs[name]) for name, array in case.inputs.items())
    assert not np.array_equal(case.inputs["image"], other.inputs["image"])
    assert case.inputs["image"].shape == (3, 3, 11)
    assert set(np.unique(case.inputs["input_ids"])) <= {5, 7, 9}
    assert (case.inputs["position_ids"] == np.arange(17)).all()
    keep, decoder_keep = case.inputs["attention_mask"] == 1, case.inputs["decoder_mask"] == 0
    assert (case.rows.real["seq"] == keep).all()
    assert (case.rows.real["decoder_seq"] == decoder_keep).all()
    # An id that is looked for, such as the largest, is never under padding.
    assert (case.inputs["input_ids"][~keep] == 5).all()
    assert keep.all() == decoder_keep.all() == (pattern == "ones")


def test_ids_that_are_padding_themselves_are_drawn_so() -> None:
    io = {"inputs": {"input_ids": {"role": "tokens", "axes": ["batch", "seq"], "pad": 5}}, "outputs": {}}
    case = draw_case(Layout.from_io(io), EXAMPLES, (), {"batch": 3, "seq": 17}, "left")
    ids = case.inputs["input_ids"]
    assert (np.diff((ids == 5).astype(int), axis=1) <= 0).all()
    assert set(np.unique(ids)) == {5, 7, 9}


@pytest.mark.parametrize(
    ("example", "attends", "masked"),
    [
        (np.array([[True, False], [True, True]]), True, False),
        (np.array([[False, True], [False, False]]), False, True),
        (np.array([[0, -1e9], [0, 0]], np.float32), 0, -1e9),
        (np.zeros((2, 2), np.float32), 0, -np.inf),
        (np.ones((2, 2), np.int64), 1, 0),
    ],
    ids=["True attends", "True masks", "additive", "all zero", "all one"],
)
def test_a_mask_of_pairs_keeps_the_examples_convention(example: np.ndarray, attends: float, masked: float) -> None:
    rng = np.random.default_rng(0)
    assert (dense_mask(example, (4, 4), "ones", rng) == attends).all()
    drawn = dense_mask(example, (2, 1, 7, 5), "holes", rng)
    assert {float(value) for value in np.unique(drawn)} == {float(attends), np.float32(masked).item()}
    assert (drawn[..., range(5), range(5)] == attends).all()
    assert (drawn == attends).any(axis=-1).all()


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_case_is_lengthened_on_a_side(side: str) -> None:
    case = draw_case(LAYOUT, EXAMPLES, (), sizes_of(LAYOUT, Size(2, 5, 4)), "holes")
    longer = lengthened(case, LAYOUT, EXAMPLES, side)
    old, new = (slice(5), slice(5, None)) if side == "right" else (slice(3, None), slice(3))
    for name in ("input_ids", "position_ids", "attention_mask"):
        assert (longer.inputs[name][:, old] == case.inputs[name]).all()
        assert longer.inputs[name].shape == (2, 8)
    assert (longer.inputs["attention_mask"][:, new] == 0).all()
    assert (longer.inputs["decoder_mask"][:, -3:] if side == "right" else longer.inputs["decoder_mask"][:, :3]).all()
    assert longer.inputs["position_ids"][:, new].tolist() == [[5, 6, 7] if side == "right" else [0, 0, 0]] * 2
    assert (longer.inputs["image"] == case.inputs["image"]).all()


def test_sizes_that_are_a_sum_stay_one() -> None:
    io = {
        "inputs": {
            "x": {"role": "tokens", "axes": ["batch", "seq", 4]},
            "past": {"role": "other", "axes": ["batch", 2, "past", 4]},
            "attention_mask": {"role": "mask", "axes": ["batch", "total"], "pad": 0},
        },
        "outputs": {},
    }
    plain = Layout.from_io(io)
    layout = Layout(plain.inputs, plain.outputs, plain.batch, plain.tokens, (Sum("total", "past", "seq"),))
    sizes = sizes_of(layout, Size(2, 7, 11))
    assert sizes["total"] == sizes["past"] + sizes["seq"]
    assert sizes_of(layout, Size(2, 7, 11), {"seq": 30})["total"] == sizes["past"] + 30
    examples = {"x": np.zeros((2, 2, 4)), "past": np.zeros((2, 2, 3, 4)), "attention_mask": np.ones((2, 5))}
    case = draw_case(layout, examples, (), sizes, "right")
    real = case.inputs["attention_mask"] == 1
    assert (case.rows.real["seq"] == real[:, -sizes["seq"] :]).all()
