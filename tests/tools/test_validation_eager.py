"""validate() against a module: each mask that a candidate loses is caught where it matters."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from maskport.export import export
from maskport.models import Causal, Encoder, EncoderLayer, Full, KeyPadding, Mask, Segments, Window
from maskport.tools import validate
from maskport.tools.builtin import BUILTINS
from maskport.tools.errors import ToolError
from maskport.tools.verdict import Verdict
from torch import nn

AXES = {0: "batch", 1: "seq"}
PADDED = KeyPadding("attention_mask")


def encoder_of(mask: Mask) -> nn.Module:
    torch.manual_seed(0)
    return Encoder(EncoderLayer(16, 2, 32, mask=mask), num_layers=1)


def example(*names: str) -> dict[str, Any]:
    ids = torch.tensor([[1, 1, 2, 2, 2], [1, 2, 2, 3, 3]])
    values = {"src": torch.randn(2, 5, 16), "attention_mask": torch.ones_like(ids), "segment_ids": ids}
    return {name: values[name] for name in ("src", *names)}


class Ignoring(nn.Module):
    """An encoder that takes masks by name and uses none; the file keeps its inputs."""

    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self.encoder = encoder_of(mask)

    def forward(self, src: torch.Tensor, **masks: torch.Tensor) -> torch.Tensor:
        used = {name: masks[name] for name in self.encoder.layers[0].self_attn.mask.tensors}
        return self.encoder(src, **used) + 0 * sum(mask[..., None] for mask in masks.values())


@functools.cache
def compared(candidate: Mask, reference: Mask) -> Verdict:
    """Validate the encoder with one mask, exported, against the encoder with another."""
    inputs = example(*reference.tensors)
    dynamic = dict.fromkeys(inputs, AXES)
    file = export(Ignoring(candidate), inputs, dynamic_shapes=dynamic, check=False).serialize()
    return validate(file, encoder_of(reference), inputs)


def failed(verdict: Verdict) -> set[str]:
    return {case.name.removeprefix("parity/").rsplit("/", 1)[0] for case in verdict.cases if not case.ok}


@pytest.mark.parametrize("mask", [PADDED, Causal() & PADDED, Window(3, 3) & PADDED, Segments("segment_ids"), Full()])
def test_a_right_candidate_agrees(mask: Mask) -> None:
    verdict = compared(mask, mask)
    assert verdict.ok
    assert verdict.worst is not None
    assert 0 < verdict.worst < 1e-5
    assert verdict.plan is not None
    padded, segments = ("attention_mask" in mask.tensors, "segment_ids" in mask.tensors)
    assert verdict.runs == len(verdict.plan.choices) == (31 if padded else 20 if segments else 15)


def test_lost_padding_is_seen_wherever_a_token_is_hidden() -> None:
    verdict = compared(Full(), PADDED)
    assert {name.split("mask=")[1] for name in failed(verdict)} == {"right", "left", "holes", "mixed", "one token"}


def test_padding_lost_under_a_causal_mask_is_not_seen_on_the_right() -> None:
    verdict = compared(Causal(), Causal() & PADDED)
    assert {name.split("mask=")[1] for name in failed(verdict)} == {"left", "holes", "mixed", "one token"}


def test_a_lost_window_is_seen_where_the_row_is_longer() -> None:
    verdict = compared(PADDED, Window(8, 8) & PADDED)
    assert {case.sizes["seq"] for case in verdict.cases if not case.ok} == {17, 33}


def test_a_window_beyond_the_usual_sizes_gets_a_longer_row() -> None:
    verdict = compared(PADDED, Window(40, 40) & PADDED)
    assert {case.sizes["seq"] for case in verdict.cases if not case.ok} == {81}


@pytest.mark.parametrize(("reach", "quick"), [(40, True), (5000, False)])
def test_a_window_that_no_row_is_longer_than_is_not_run(reach: int, quick: bool) -> None:
    inputs = example("attention_mask")
    module = encoder_of(Window(reach, reach) & PADDED)
    file = export(module, inputs, dynamic_shapes=dict.fromkeys(inputs, AXES), check=False).serialize()
    verdict = validate(file, module, inputs, quick=quick)
    found = {contract.name: contract for contract in verdict.contracts}[f"window/{reach}"]
    assert found.status == "not run"
    assert found.why is not None
    assert f"longer than the mask `window({reach}, {reach}) & padding(attention_mask)`" in found.why


def test_lost_segments_are_seen() -> None:
    verdict = compared(Full(), Segments("segment_ids"))
    assert {name.split("structure=")[1] for name in failed(verdict)} == {"parts", "apart", "mixed"}


def test_rows_without_a_key_are_empty_rows() -> None:
    verdict = compared(Causal() & PADDED, Causal() & PADDED)
    kinds = {(case.pattern, case.rows) for case in verdict.cases}
    assert ("left", "empty") in kinds
    assert ("left", "padding") not in kinds


@pytest.mark.parametrize("lost", ["source_mask", "target_mask"])
def test_each_mask_of_an_encoder_decoder_counts(lost: str) -> None:
    module, inputs, dynamic = BUILTINS["encoder-decoder"].build()

    class Lost(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, **tensors: torch.Tensor) -> torch.Tensor:
            kept = {**tensors, lost: torch.ones_like(tensors[lost])}
            return self.module(**kept) + 0 * tensors[lost].sum()

    file = export(Lost(), inputs, dynamic_shapes=dynamic, check=False).serialize()
    verdict = validate(file, module, inputs, quick=True)
    assert not verdict.ok
    assert {contract.status for contract in verdict.contracts if contract.name != "first-difference"} == {"ok"}


def test_the_module_is_given_back_and_other_values_are_passed_on() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.dropout = nn.Linear(4, 4), nn.Dropout(0.5)

        def forward(self, x: torch.Tensor, factor: float) -> dict[str, torch.Tensor]:
            y = self.dropout(self.linear(x)) * factor
            return {"tokens": y, "pooled": y.mean(1)}

    module = Scaled().train()
    inputs = (torch.randn(2, 3, 4), 3.0)
    file = export(module, inputs, dynamic_shapes={"x": AXES}).serialize()
    verdict = validate(file, module, inputs)
    assert verdict.ok
    assert module.training
    assert module.dropout.training
    assert {case.name.rsplit("/", 1)[1] for case in verdict.cases} == {"tokens", "pooled"}


def test_what_does_not_fit_is_an_error() -> None:
    inputs = example("attention_mask")
    file = export(Ignoring(PADDED), inputs, dynamic_shapes=dict.fromkeys(inputs, AXES)).serialize()
    with pytest.raises(ToolError, match="a module needs example_inputs"):
        validate(file, encoder_of(PADDED))
    with pytest.raises(ToolError, match="example_inputs has sorce; forward takes input"):
        validate(file, nn.Linear(16, 16), {"sorce": inputs["src"]})
    with pytest.raises(ToolError, match="returns another number of tensors; is it the module that the file was made"):
        validate(file, nn.LSTM(16, 16), {"input": inputs["src"]})
    with pytest.raises(ToolError, match="the module fails on its own example: "):
        validate(file, encoder_of(PADDED), {"src": inputs["src"][..., :3], "attention_mask": inputs["attention_mask"]})


def test_another_rank_fails_and_nothing_else_is_claimed() -> None:
    linear = nn.Linear(4, 4)
    file = export(linear, (torch.randn(2, 3, 4),), dynamic_shapes={"input": AXES}).serialize()
    verdict = validate(file, linear, (torch.randn(2, 4),))
    assert not verdict.ok
    assert verdict.contracts[0].why == "input input has 3 axes, the reference's 2"
