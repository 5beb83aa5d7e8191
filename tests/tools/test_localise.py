"""Where two files part is told by numbers, whatever nodes and values are called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from maskport.tools import validate
from maskport.tools.localise import first_apart
from maskport.tools.mutants.mutations import MUTATIONS
from maskport.tools.mutants.plant import Ground

from ..export.symbolic.mutations import renamed_and_reordered
from .attention_graphs import attention

MASK = np.ones((2, 9), np.int64)
MASK[0, 6:] = 0
INPUTS = {"x0": np.random.default_rng(0).standard_normal((2, 9, 8)).astype("f"), "attention_mask": MASK}
RIGHT = attention(3, 3, 3)


def planted(name: str, layer: int) -> bytes:
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == name)
    grounds = list(Ground.each(ir.from_proto(RIGHT)))
    made = grounds[layer].plant(mutation.change, mutation.rewrite)
    assert made is not None
    return ir.to_proto(made[0]).SerializeToString()


@pytest.mark.parametrize(
    ("name", "layer", "mask"),
    [
        ("padding dropped", 0, "window(3, 0)"),
        ("window one too wide", 1, "window(4, 0) & padding(attention_mask)"),
        ("scale left out", 2, "window(3, 0) & padding(attention_mask)"),
    ],
)
def test_the_attention_with_the_fault_is_named(name: str, layer: int, mask: str) -> None:
    told = first_apart(planted(name, layer), RIGHT.SerializeToString(), INPUTS)
    assert told is not None
    assert told.endswith(f"of the attention layers.{layer}.self_attn with the mask `{mask}`")


def test_a_fault_is_found_behind_other_names_and_another_order(tmp_path: Path) -> None:
    fault = onnx.load_from_string(planted("padding dropped", 1))
    renamed = renamed_and_reordered(fault, tmp_path).SerializeToString()
    told = first_apart(renamed, RIGHT.SerializeToString(), INPUTS)
    assert told is not None
    assert told.endswith("with the mask `window(3, 0)`")


def test_what_is_computed_in_another_way_is_no_fault() -> None:
    made = list(Ground.each(ir.from_proto(RIGHT)))[1].plant(lambda planted: planted)
    assert made is not None
    assert first_apart(ir.to_proto(made[0]).SerializeToString(), RIGHT.SerializeToString(), INPUTS) is None


def test_validation_tells_where_two_files_part() -> None:
    verdict = validate(planted("padding dropped", 1), RIGHT.SerializeToString(), quick=True)
    found = next(contract for contract in verdict.contracts if contract.name == "first-difference")
    assert found.status == "failed"
    assert "layers.1.self_attn" in str(found.why)


def test_validation_of_files_that_agree_has_no_place_to_tell() -> None:
    verdict = validate(RIGHT.SerializeToString(), RIGHT.SerializeToString(), quick=True)
    assert "first-difference" not in {contract.name for contract in verdict.contracts}
