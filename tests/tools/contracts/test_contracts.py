"""A right model keeps its contracts, each fault breaks the one that is named for it, and what shows nothing is told."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from maskport.models import Mask
from maskport.tools import validate
from maskport.tools.contracts import contracts_of
from maskport.tools.errors import ToolError
from maskport.tools.verdict import Contract, Verdict

from ..tiny_models import tiny
from .layers import layers

EXPECTED = "causal & padding(attention_mask)"


def of(model: onnx.ModelProto, expect: str | None = None, seed: int = 0) -> Verdict:
    return contracts_of(model.SerializeToString(), expect, seed=seed)


def status(verdict: Verdict) -> dict[str, str]:
    return {contract.name: contract.status for contract in verdict.contracts}


def named(verdict: Verdict, name: str) -> Contract:
    return next(contract for contract in verdict.contracts if contract.name == name)


@pytest.fixture(scope="module")
def right() -> Verdict:
    return of(layers(), EXPECTED)


def test_a_right_model_keeps_its_contracts(right: Verdict) -> None:
    assert right.ok
    assert right.failures == ()
    assert {name for name, found in status(right).items() if found == "ok"} == {
        "expected-mask/layers.0.self_attn",
        "expected-mask/layers.1.self_attn",
        "repeatable",
        "finite-rows",
        "empty-rows",
        "padding-invariance",
        "causality",
        "mask",
        "tokens-matter",
        "batch-invariance",
        "prefix",
        "input-matters/x0",
        "input-matters/attention_mask",
        "lengths-free",
    }


def test_what_shows_nothing_is_not_run_and_says_why(right: Verdict) -> None:
    assert named(right, "window").why == "the model has no window"
    assert named(right, "segments").why == "the model has no segments"
    assert "0 x NaN is NaN" in str(named(right, "padding-nan").why)


def test_it_is_told_what_rows_without_keys_give(right: Verdict) -> None:
    assert named(right, "empty-rows").why == "attention without a key gives the mean of all values"


@pytest.mark.parametrize(
    ("fault", "contract", "told"),
    [
        ("mask dropped", "padding-invariance", "at padding move 'x2'"),
        ("mask dropped", "input-matters/attention_mask", "it has no effect"),
        ("mask inverted", "padding-invariance", "moves 'x2'"),
        ("mask inverted", "tokens-matter", "move no other row"),
        ("left padding taken for right", "padding-invariance", "mask=holes"),
        ("left padding taken for right", "tokens-matter", "move no other row"),
        ("padding of row 0", "padding-invariance", "at padding move 'x2'"),
        ("padding of row 0", "tokens-matter", "move no other row"),
        ("weak fill", "padding-invariance", "at padding move 'x2'"),
        ("weak fill", "causality", "another token at seq"),
        ("multiplied", "causality", "another token at seq"),
        ("empty rows", "empty-rows", "NaN in"),
        ("half fill", "finite-rows", "NaN in"),
        ("over the batch", "batch-invariance", "in another row of the batch"),
        ("baked length", "lengths-free", "of the lengths 1 to 512 it runs at 7 alone"),
        ("baked batch", "lengths-free", "of the batches 1, 2, 3, 4, 8 it runs at 2 alone"),
    ],
)
def test_a_fault_breaks_the_contract_that_is_named_for_it(fault: str, contract: str, told: str) -> None:
    verdict = of(layers(fault), EXPECTED if not fault.startswith("baked") else None)
    assert not verdict.ok
    assert named(verdict, contract).status == "failed"
    assert told in str(named(verdict, contract).why)


@pytest.mark.parametrize("fault", ["multiplied", "weak fill", "over the batch"])
def test_a_mask_that_is_not_read_back_breaks_what_the_inputs_declare(fault: str) -> None:
    verdict = of(layers(fault))
    assert named(verdict, "padding-invariance").status == "failed"


WINDOW = "window(3, 0) & padding(attention_mask)"


def test_a_window_is_held_to_all_layers_together() -> None:
    verdict = of(layers(None, 3, 3), WINDOW)
    assert verdict.ok
    assert status(verdict)["window"] == "ok"


@pytest.mark.parametrize(
    ("windows", "told"),
    [
        ((3, 4), "another token at seq"),
        ((0, 0), "another token at seq"),
        ((3, 2), "no row moves with the token 6 places before it, where the windows of all layers end"),
    ],
)
def test_another_window_than_the_declared_one_is_seen_when_it_runs(windows: tuple[int, int], told: str) -> None:
    verdict = of(layers(None, *windows), WINDOW)
    assert named(verdict, "window").status == "failed"
    assert told in str(named(verdict, "window").why)
    assert named(verdict, "expected-mask/layers.1.self_attn").status == "failed"


def test_a_mask_that_is_not_the_declared_one_is_told_with_a_witness() -> None:
    found = named(of(layers(None, 3), EXPECTED), "expected-mask/layers.0.self_attn")
    assert found.why == (
        "the graph's mask is `window(3, 0) & padding(attention_mask)`, expected is `causal & padding(attention_mask)`; "
        "they differ at query 4, key 0, length 5, attention_mask=[[1, 1, 1, 1, 1]]"
    )


def test_a_layer_without_a_window_leaves_the_window_unshown() -> None:
    found = named(of(layers(None, 3, 0)), "window")
    assert found.status == "not run"
    assert "a layer that may attend more" in str(found.why)


def test_a_window_longer_than_any_padded_case_is_tried_past_its_end() -> None:
    verdict = of(layers(None, 40), "window(40, 0) & padding(attention_mask)")
    assert status(verdict)["window"] == "ok"
    assert named(of(layers(None, 41), "window(40, 0) & padding(attention_mask)"), "window").status == "failed"


def test_every_attention_is_held_to_its_own_mask_by_default() -> None:
    assert of(layers(None, 2, 5)).ok


@pytest.mark.parametrize("seed", range(3))
def test_other_seeds_raise_no_alarm(seed: int) -> None:
    assert of(layers(None, 3, 3), seed=seed).failures == ()


@pytest.mark.parametrize("seed", [8, 40, 42])
def test_padding_that_cuts_the_only_way_to_the_end_of_the_windows_raises_no_alarm(seed: int) -> None:
    """Of one padding no row may read the token at the end, and many the one before it."""
    assert contracts_of(layers(None, 5, 5).SerializeToString(), quick=True, seed=seed).failures == ()


def test_a_model_that_mixes_tokens_in_another_way_is_held_to_its_inputs_alone() -> None:
    assert contracts_of(tiny()).ok
    verdict = contracts_of(tiny("dropped"))
    assert named(verdict, "padding-invariance").status == "failed"
    assert status(verdict)["causality"] == "not run"


def test_a_model_whose_weights_are_nan_is_no_pass() -> None:
    verdict = contracts_of(tiny("always nan"))
    assert not verdict.ok
    assert named(verdict, "finite-rows").status == "failed"


@pytest.mark.parametrize(
    ("expect", "told"),
    [("causal &", "is no mask"), ("padding(mask)", "the inputs are x0, attention_mask"), ("", "is no mask")],
)
def test_a_declaration_that_is_none_of_the_inputs_is_refused(expect: str, told: str) -> None:
    with pytest.raises(ToolError, match=told):
        of(layers(), expect)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ToolError, match="no ONNX model"):
        contracts_of(b"no model")


def test_a_model_of_text_is_not_run_and_not_right() -> None:
    text = "g (string[batch, seq] x) => (string[batch, seq] y) { y = Identity (x) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    verdict = of(model)
    assert not verdict.ok
    assert "no tensor of numbers" in str(named(verdict, "contracts").why)


def test_validate_without_a_reference_tries_the_contracts_alone() -> None:
    verdict = validate(layers().SerializeToString(), expect=Mask.parse(EXPECTED))
    assert verdict.ok
    assert verdict.cases == ()
    assert verdict.to_json()["ok"]


def test_validate_with_both_tries_both() -> None:
    model = layers().SerializeToString()
    verdict = validate(model, model, contracts=True, quick=True)
    assert verdict.ok
    assert verdict.cases
    assert {"interface", "causality"} <= status(verdict).keys()


def test_a_token_that_nothing_changes_is_not_counted() -> None:
    """A table of one row: every id is the same."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (int64[batch, seq] input_ids) => (float[batch, seq, 2] y) <float[1, 2] table = {1, 2}>
        { y = Gather (table, input_ids) }"""
    )
    verdict = of(model)
    assert status(verdict)["mask"] == "not run"
    assert status(verdict)["tokens-matter"] == "not run"
    assert np.isfinite(named(verdict, "finite-rows").value or 0)


def test_quick_tries_fewer_paddings_and_sees_the_same_faults() -> None:
    assert contracts_of(layers().SerializeToString(), quick=True).ok
    for fault in ("mask dropped", "left padding taken for right", "padding of row 0"):
        verdict = contracts_of(layers(fault).SerializeToString(), EXPECTED, quick=True)
        assert named(verdict, "padding-invariance").status == "failed"
