"""The shipped table: how it is made of times, and that its command writes what is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from maskport.export.lowering.costs import COSTS, Costs
from maskport.export.lowering.kernels import KERNELS
from maskport.export.tuning import table
from maskport.tools.autotune import main


def test_close_costs_are_the_same_but_not_those_of_decomposed_attention() -> None:
    found = {"a": [0.71], "b": [0.74], "c": [0.9], "decomposed": [0.75]}
    assert table._stepped(found) == {"a": 0.7, "b": 0.7, "c": 0.9, "decomposed": 0.75}


def test_the_median_of_the_passes_counts() -> None:
    assert table._stepped({"a": [0.5, 9.0, 0.5]}) == {"a": 0.5}


def test_a_dense_mask_costs_no_less_than_what_tells_it_otherwise() -> None:
    costs = table._dense_last(
        {
            "ai.onnx.Attention causal": [0.9],
            "ai.onnx.Attention own bias": [1.1],
            "ai.onnx.Attention bool": [0.8],
            "ai.onnx.Attention bias": [0.8],
            "com.microsoft.MultiHeadAttention bias": [0.7],
            "decomposed": [0.6],
        }
    )
    assert costs["ai.onnx.Attention bool"] == [0.9]
    assert costs["ai.onnx.Attention bias"] == [1.1]
    assert costs["com.microsoft.MultiHeadAttention bias"] == [0.7]
    assert costs["decomposed"] == [0.6]


def test_the_command_writes_a_table_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half_as_long(
        node: Any, model: Any, target: Any, rows: Any, assume: Any, workload: Any, names: Any, *_: Any
    ) -> Any:
        return {"1x8": {name: 2.0 if name == "decomposed" else 1.0 for name in names}}

    monkeypatch.setattr(table, "measured", half_as_long)
    main(tmp_path / "costs.json")
    costs = Costs.load(tmp_path / "costs.json")
    assert costs.costs["cpu"].keys() == {kernel.name for kernel in KERNELS if kernel.rest != "channel"}
    assert costs.cost("ai.onnx.Attention causal", "cpu", 1, 32) == 0.5
    assert costs.cost("decomposed", "cpu:float16", 2, 1024) == 1.0
    assert json.loads((tmp_path / "costs.json").read_text())["machine"]["threads"] == 1


def test_one_real_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "CLASSES", ((1, 8),))
    found = table.measure_table(seconds=0.0)
    assert all(cost > 0 for costs in found["cpu"].values() for cost in costs)
    assert "com.microsoft.MultiHeadAttention" not in found["cpu:float16"]


def test_float16_has_costs_of_its_own_and_others_those_of_float32() -> None:
    assert COSTS.cost("decomposed", "cpu:float16", 8, 256) == 1.0
    assert COSTS.costs["cpu:float16"] != COSTS.costs["cpu"]
    assert COSTS.cost("ai.onnx.Attention", "cpu:float64", 8, 256) == COSTS.cost("ai.onnx.Attention", "cpu", 8, 256)
