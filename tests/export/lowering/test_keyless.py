"""Rows without a key hold what the source gives where other rows read them, and are left alone where nobody does."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from maskport.export.lowering.keyless import may_be_read
from maskport.models import Mask

from ..packing.token_models import agree_on, attend, feeds, made_by, mask_model, model, runner

READ = (
    "causal(past - 1)",
    "adjacency(g)",
    "dense(d) & padding(m)",
    "segments(ids, at)",
    "query_padding(m)",
    "query_padding(m) & padding(doc)",
    "causal & ~padding(m) | dense(d)",
)
NOT_READ = (
    "full",
    "window(3, -1)",
    "padding(m)",
    "causal & padding(m)",
    "window(3, 0) & padding(m) & segments(doc)",
    "chunked(4) & padding(m != 1)",
    "query_padding(m) & padding(m)",
    "prefix(n) & causal",
    "padding(m) | dense(d) | window(0, 0)",
    "~padding(m)",
)


@pytest.mark.parametrize("text", READ)
def test_a_row_without_a_key_may_be_read(text: str) -> None:
    assert may_be_read(Mask.parse(text), cross=False)


@pytest.mark.parametrize("text", NOT_READ)
def test_whoever_is_attended_has_a_key(text: str) -> None:
    assert not may_be_read(Mask.parse(text), cross=False)


def test_queries_of_another_sequence_have_keys_all_or_none() -> None:
    assert not may_be_read(Mask.parse("padding(m)"), cross=True)
    assert may_be_read(Mask.parse("padding(m) & causal"), cross=True)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("padding_rows", ["any", "keep"])
@pytest.mark.parametrize("text", ["causal(past - 1)", "adjacency(g)", "dense(d) & padding(m)", "segments(ids, at)"])
def test_the_next_layer_reads_what_it_read(text: str, padding_rows: str, target: str) -> None:
    """In the source a row without a key is the mean of all values, in the kernel zero: others attend it."""
    mask = Mask.parse(text)
    source = mask_model(mask, layers=2)
    result = made_by(source, target, padding_rows=padding_rows)
    assert len(result.sites) == 2
    without, before, after = 0, runner(ir.from_proto(source)), runner(result.model)
    for seed in range(4):
        given = feeds(source, 3, 7, "holes", seed)
        if "d" in given:
            given["d"] &= np.random.default_rng(seed).random(given["d"].shape) < 0.4
        if "g" in given:
            given["g"] = given["g"] // 2
        dense = np.broadcast_to(mask.dense(7, 7, **{name: given[name] for name in mask.tensors}), (3, 1, 7, 7))
        real = given["m"] != 0 if "m" in mask.tensors else np.ones((3, 7), bool)
        rows = dense.any(-1)[:, 0] & real
        without += int((~rows & real).sum())
        agree_on(rows, before(given)["y"], after(given)["y"])
    assert without


def test_which_rows_these_are_is_computed_once() -> None:
    result = made_by(mask_model(Mask.parse("adjacency(g)"), layers=2))
    assert [node.op_type for node in result.model.graph].count("Greater") == 1
    assert [node.op_type for node in result.model.graph].count("Where") == 2


def test_usual_masks_cost_nothing() -> None:
    result = made_by(mask_model(Mask.parse("causal & padding(m)"), layers=2), padding_rows="keep")
    assert "Where" not in [node.op_type for node in result.model.graph]


def test_what_can_not_be_told_is_left_as_it_is() -> None:
    """Added to a score, -1e4 does not make it vanish: what a row without a key gives is not known."""
    added = """fill = Constant<value_float=-10000.0>()
        shown4 = Cast<to=9>(g4)
        added = Where(shown4, f0, fill)
        o_t = Add(o_s, added)"""
    source = model(attention=attend("h", "o", None, scores=added), inputs="int64[B,1,S,S] g4")
    result = made_by(source)
    assert not result.changed
    assert "may have no key and be read by others, and what it gives is not known" in " ".join(result.notes)
