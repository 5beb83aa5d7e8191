"""compare(): a right candidate agrees; each kind of wrong candidate is caught where it differs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from maskport.export import export
from maskport.models import Causal, Encoder, EncoderLayer, KeyPadding, Segments
from maskport.runtime import InputError, ModelError, Session
from maskport.tools.compare import Comparison, compare
from maskport.tools.tables import comparison_table
from rich.console import Console
from torch import nn

AXES = {0: "batch", 1: "seq"}
MASK = Causal() & KeyPadding("attention_mask")


def example() -> dict[str, Any]:
    return {"src": torch.randn(2, 5, 16), "attention_mask": torch.ones(2, 5, dtype=torch.int64)}


def session_of(module: nn.Module, **arguments: Any) -> Session:
    shapes = {"src": AXES, "attention_mask": AXES}
    exported = export(module, example(), dynamic_shapes=shapes, check=False, **arguments)
    return Session(exported.serialize(), device="cpu")


@pytest.fixture(scope="module")
def encoder() -> nn.Module:
    torch.manual_seed(0)
    return Encoder(EncoderLayer(16, 2, 32, mask=MASK, fusion="self_attention"), num_layers=2)


@pytest.fixture(scope="module")
def session(encoder: nn.Module) -> Session:
    return session_of(encoder)


class Wrong(nn.Module):
    """An encoder whose mask or outputs are changed on the way."""

    def __init__(self, encoder: nn.Module, fault: str) -> None:
        super().__init__()
        self.encoder, self.fault = encoder, fault

    def forward(self, src: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        if self.fault == "dropped":
            return self.encoder(src, attention_mask=torch.ones_like(attention_mask)) + 0 * attention_mask[..., None]
        output = self.encoder(src, attention_mask=attention_mask)
        empty = (attention_mask == 0)[..., None]
        if self.fault == "nan padding":
            return output.masked_fill(empty, torch.nan)
        if self.fault == "nan":
            return output.masked_fill(empty.any(1, keepdim=True), torch.nan)
        return (output, output.mean(1)) if self.fault == "pooled" else output.masked_fill(empty, 7.0)


@pytest.fixture(scope="module")
def dropped(encoder: nn.Module) -> Comparison:
    return compare(session_of(Wrong(encoder, "dropped")), encoder, example(), mask=MASK)


def failed(comparison: Comparison) -> set[str]:
    return {case.pattern for case in comparison.failures}


def test_a_right_candidate_agrees_and_every_pattern_ran(encoder: nn.Module, session: Session) -> None:
    seen = []
    comparison = compare(session, encoder, example(), mask=MASK, on_case=seen.append)
    assert comparison.ok
    assert comparison.worst is not None
    assert 0 < comparison.worst <= 1e-5
    assert tuple(seen) == comparison.cases
    assert {case.pattern for case in seen} == {"ones", "right", "left", "holes", "one token", "no token"}
    assert [case.pattern for case in seen if (case.batch, case.length) == (1, 1)] == ["ones", "no token"]
    nothing = next(case for case in seen if (case.batch, case.pattern) == (1, "no token"))
    assert (nothing.rows, nothing.error) == (0, None)


def test_a_dropped_mask_fails_wherever_it_matters(dropped: Comparison) -> None:
    assert not dropped.ok
    # Causal rows never see the padding to their right, so the dropped mask is invisible there.
    assert {"left", "holes"} <= failed(dropped)
    assert not {"ones", "right", "no token"} & failed(dropped)


def test_nan_is_a_failure(encoder: nn.Module) -> None:
    comparison = compare(session_of(Wrong(encoder, "nan")), encoder, example(), mask=MASK)
    assert {"right", "left", "holes"} <= failed(comparison)
    assert comparison.worst is not None
    assert math.isnan(comparison.worst)


def test_padding_rows_must_be_finite_and_nothing_more(encoder: nn.Module) -> None:
    comparison = compare(session_of(Wrong(encoder, "nan padding")), encoder, example(), mask=MASK)
    assert {"right", "left", "holes", "no token"} <= failed(comparison)
    assert comparison.worst is not None
    assert comparison.worst <= 1e-5
    assert compare(session_of(Wrong(encoder, "other padding")), encoder, example(), mask=MASK).ok


def test_rows_without_a_key_are_not_valid(encoder: nn.Module, session: Session) -> None:
    comparison = compare(session, encoder, example(), mask=MASK & ~MASK)
    assert {case.error for case in comparison.cases} == {None}
    assert not comparison.ok
    assert comparison.worst is None


def test_outputs_without_rows_are_named(encoder: nn.Module) -> None:
    pooled = Wrong(encoder, "pooled")
    comparison = compare(session_of(pooled), pooled, example(), sizes=[(2, 3)], patterns=["ones"])
    assert (comparison.outputs, comparison.not_compared) == (("output_0",), ("output_1",))
    assert comparison.ok


def test_a_module_without_a_mask_is_compared_once_per_size() -> None:
    linear = nn.Linear(4, 4)
    inputs = {"input": torch.randn(2, 3, 4)}
    exported = export(linear, inputs, dynamic_shapes={"input": AXES})
    comparison = compare(Session(exported.serialize(), device="cpu"), linear, inputs, sizes=[(1, 2), (3, 5)])
    assert [(case.pattern, case.rows) for case in comparison.cases] == [("ones", 2), ("ones", 15)]
    assert comparison.ok


def test_segments_keep_the_examples_values() -> None:
    encoder = Encoder(EncoderLayer(16, 2, 32, mask=Segments("segment_ids")), num_layers=1)
    inputs = {"src": torch.randn(2, 4, 16), "segment_ids": torch.tensor([[3, 3, 5, 5], [3, 5, 5, 8]])}
    exported = export(encoder, inputs, dynamic_shapes={"src": AXES, "segment_ids": AXES})
    seen: list[torch.Tensor] = []
    encoder.register_forward_pre_hook(lambda _, args, kwargs: seen.append(kwargs["segment_ids"]), with_kwargs=True)
    comparison = compare(Session(exported.serialize(), device="cpu"), encoder, inputs, sizes=[(1, 1), (3, 17)])
    assert comparison.ok
    assert {case.pattern for case in comparison.cases} == {"ones"}
    assert set(seen[-1].flatten().tolist()) == {3, 5, 8}


def test_what_cannot_be_compared_is_an_error(encoder: nn.Module, session: Session) -> None:
    with pytest.raises(InputError, match="unknown padding patterns lef; choose from ones, right, left"):
        compare(session, encoder, example(), patterns=["lef"])
    linear = nn.Linear(4, 4)
    fixed = Session(export(linear, (torch.randn(2, 4),)).serialize(), device="cpu")
    with pytest.raises(ModelError, match="neither a padding mask nor an input with free batch and length axes"):
        compare(fixed, linear, {"input": torch.randn(2, 4)})


def test_metadata_that_is_missing_or_unknown_is_refused() -> None:
    linear = nn.Linear(4, 4)
    inputs = {"input": torch.randn(2, 3, 4)}
    exported = export(linear, inputs, dynamic_shapes={"input": AXES})
    exported.model.metadata_props["maskport.io"] = '{"version": 99}'
    with pytest.raises(ModelError, match="version 99, this release reads 1"):
        compare(Session(exported.serialize(), device="cpu"), linear, inputs)
    del exported.model.metadata_props["maskport.io"]
    with pytest.raises(ModelError, match=r"no maskport.io metadata; export it with maskport.export.export"):
        compare(Session(exported.serialize(), device="cpu"), linear, inputs)


def test_the_table_fits_and_shows_the_failure(dropped: Comparison) -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(comparison_table(dropped))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 80
    shown = {line.split("  ")[0]: line.split()[-1] for line in lines[1:]}
    assert shown["ones"] == "agrees"
    assert shown["left"] == "differs"
