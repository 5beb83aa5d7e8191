"""Costs: the nearest class decides, what was not measured costs most, and a file can replace them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from maskport.export.lowering.costs import COSTS, CostError, Costs, provider_of
from maskport.export.lowering.kernels import KERNELS
from maskport.export.lowering.targets import ARCHITECTURES, Target

TABLE = Costs(((1, 32), (8, 256)), {"cpu": {"fast": [1.0, 4.0], "flat": 2.0}})


def test_the_nearest_class_decides() -> None:
    assert TABLE.cost("fast", "cpu", 1, 16) == 1.0
    assert TABLE.cost("fast", "cpu", 2, 64) == 1.0
    assert TABLE.cost("fast", "cpu", 64, 1024) == 4.0
    assert TABLE.cost("flat", "cpu", 64, 1024) == 2.0


def test_what_was_not_measured_costs_most() -> None:
    assert TABLE.cost("slow", "cpu", 1, 1) == math.inf
    assert TABLE.cost("fast", "cuda:sm90", 1, 1) == math.inf


def test_every_kernel_has_a_cost_where_it_runs() -> None:
    for provider in ("cpu", "cuda"):
        for sm in (None,) if provider == "cpu" else (None, *ARCHITECTURES):
            column = COSTS.costs[provider_of(Target(provider, sm))]
            missing = {kernel.name for kernel in KERNELS} - column.keys()
            # Made for CUDA, where heads are widened anyhow.
            assert all(provider == "cpu" and "channel" in name for name in missing)
            assert not column.keys() - {kernel.name for kernel in KERNELS}


def test_a_column_has_a_number_for_each_class() -> None:
    assert {len(numbers) for numbers in COSTS.costs["cpu"].values() if not isinstance(numbers, float)} == {
        len(COSTS.classes)
    }


def test_a_file_replaces_the_table(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"classes": [[8, 256]], "cpu": {"decomposed": [0.5]}}))
    assert Costs.load(path).cost("decomposed", "cpu", 1, 1) == 0.5


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"classes": [[8]]}', '{"classes": [[8, 256]], "cpu": {"decomposed": [1, 2]}}']
)
def test_a_file_that_is_no_table_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(CostError, match=r"costs.json is no table of costs: .*expected \{"):
        Costs.load(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CostError, match=r"none\.json is no table of costs"):
        Costs.load(tmp_path / "none.json")
