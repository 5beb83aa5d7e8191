"""Which cases are run: all patterns at one size, past every window, within the work that a model's size allows."""

from __future__ import annotations

import pytest
from maskport.export.cases.patterns import MORE_NAMES
from maskport.export.proof.interface import Interface
from maskport.export.proof.plan import TOKENS_OF_A_RUN, WORK, mains, plan, weights_of
from maskport.models.masks import Mask

from ...tools.tiny_models import tiny
from .graphs import model
from .test_interface import interface

BERT_BASE = 86_000_000


@pytest.fixture(scope="module")
def tokens() -> Interface:
    import onnx
    import onnx_ir as ir

    return interface(ir.from_proto(onnx.load_from_string(tiny())))


def work(weights: int, sizes: dict[object, int]) -> int:
    return weights * (TOKENS_OF_A_RUN + sizes["batch"] * sizes["seq"])


@pytest.mark.parametrize("checked", ["cpu", "twin"])
@pytest.mark.parametrize("weights", [1, 10**7, BERT_BASE])
def test_every_pattern_is_run_within_the_work(tokens: Interface, weights: int, checked: str) -> None:
    main = mains(tokens, weights, checked)[0]
    found = plan(tokens, (), weights, checked, main)
    assert {case.pattern for case in found.cases} == set(MORE_NAMES)
    cheapest = mains(tokens, 10**12, checked)[0]
    assert main == cheapest or sum(work(weights, case.sizes) for case in found.cases) <= WORK[checked]


def test_a_small_model_is_tried_with_all(tokens: Interface) -> None:
    found = plan(tokens, (), 1, "cpu", mains(tokens, 1, "cpu")[0])
    assert found.left_out == []
    assert {(case.sizes["batch"], case.sizes["seq"]) for case in found.cases} == {
        (5, 13), (1, 1), (2, 1), (1, 7), (3, 17), (2, 33)
    }  # fmt: skip


def test_what_a_large_model_is_not_tried_with_is_counted(tokens: Interface) -> None:
    found = plan(tokens, (), BERT_BASE, "cpu", mains(tokens, BERT_BASE, "cpu")[0])
    assert [why for _, why in found.left_out] == ["a model of this size is tried with fewer"]


@pytest.mark.parametrize("weights", [1, BERT_BASE])
def test_rows_are_longer_than_every_window_and_chunk(tokens: Interface, weights: int) -> None:
    masks = [Mask.parse("window(64, 64) & padding(attention_mask)"), Mask.parse("chunked(100)")]
    found = plan(tokens, masks, weights, "cpu", mains(tokens, weights, "cpu")[0])
    assert {case.sizes["seq"] for case in found.cases} >= {73, 109}


def test_a_window_that_is_too_far_is_told(tokens: Interface) -> None:
    for weights, reach in ((1, 4000), (BERT_BASE, 1500)):
        found = plan(tokens, [Mask.parse(f"window({reach}, 0)")], weights, "cpu", mains(tokens, weights, "cpu")[0])
        told = (f"length {reach + 9}", f"too long here, so no row was longer than a window of {reach}")
        assert told in found.left_out


def test_tables_are_no_weights_to_multiply_with() -> None:
    text = """g (int64[batch, seq] ids) => (float[batch, seq, 2] y) <float[3, 2] table = {1, 2, 3, 4, 5, 6},
              float[2, 2] square = {1, 2, 3, 4}> { x = Gather (table, ids)
              y = MatMul (x, square) }"""
    assert weights_of(model(text).graph) == 4
