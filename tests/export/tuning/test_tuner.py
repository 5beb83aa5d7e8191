"""Autotune: what is measured, what is chosen by it, and what is read back instead of measured again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from maskport.export import OptimizeError, Workload, optimize
from maskport.export.lowering.costs import Costs
from maskport.export.lowering.kernels import KERNELS
from maskport.export.lowering.lower import lower
from maskport.export.lowering.targets import Target
from maskport.export.tuning import kept, site_costs, stopwatch, tuner
from maskport.export.tuning.one_site import LAYERS, alone, feeds_of
from maskport.export.tuning.site_costs import measured, relative
from maskport.export.tuning.tuner import Tuner

from ...tools.attention_graphs import attention
from ..lowering.canonical_models import Case

SMALL = Workload(((2, 5),), fill=0.6, seconds=0.0)
CPU = Target.parse("cpu")
CASES = {
    "padding": Case("padding(m)"),
    "pad of one": Case("padding(m != 1)"),
    "causal": Case("causal & padding(m)", kv_heads=2),
    "prefix": Case("prefix(n)"),
    "segments": Case("segments(s)", cross=False),
    "dense": Case("dense(d)"),
    "bias": Case("causal", bias=(1, 4, "seq", "seq")),
    "sink": Case(sink=True),
    "cache": Case("causal", past=True),
    "cross": Case("padding(m)", cross=True),
    "float16": Case("padding(m)", dtype="float16"),
    "fixed": Case("causal", static={"batch": 3, "seq": 4}),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "maskport" / "autotune"


def timed(monkeypatch: pytest.MonkeyPatch, fastest: str) -> list[list[str]]:
    """Let time be what a test says: `fastest` takes a second, the others two; return what was asked, call by call."""
    calls: list[list[str]] = []

    def interleaved(sessions: dict[str, Any], *_: Any) -> dict[str, float]:
        calls.append(list(sessions))
        return {name: 1.0 if name == fastest else 2.0 for name in sessions}

    monkeypatch.setattr(site_costs, "interleaved", interleaved)
    monkeypatch.setattr("maskport.export.tuning.packed_or_not.interleaved", interleaved)
    return calls


@pytest.mark.parametrize("name", CASES)
def test_every_kernel_that_takes_a_site_is_run(name: str) -> None:
    model = CASES[name].model()
    (seconds,) = measured(model.graph[0], model, CPU, "any", (), SMALL).values()
    assert "decomposed" in seconds
    assert all(time > 0 for time in seconds.values())
    assert name == "sink" or len(seconds) > 1


def test_what_is_granted_of_inputs_adds_kernels() -> None:
    model = CASES["padding"].model()
    (seconds,) = measured(model.graph[0], model, CPU, "any", ("right-padding",), SMALL).values()
    assert "ai.onnx.Attention lengths" in seconds


def test_what_is_no_input_is_granted_nothing() -> None:
    model = CASES["padding"].model()
    mask = model.graph.inputs[-1]
    computed = ir.node("Identity", [mask])
    computed.outputs[0].type, computed.outputs[0].shape, computed.outputs[0].name = mask.type, mask.shape, "kept"
    site = model.graph[0]
    model.graph.insert_before(site, computed)
    site.replace_input_with(list(site.inputs).index(mask), computed.outputs[0])
    (seconds,) = measured(site, model, CPU, "any", ("right-padding",), SMALL).values()
    assert "ai.onnx.Attention lengths" not in seconds


def test_a_site_is_taken_out_a_few_times_with_its_masks_padding() -> None:
    model = CASES["pad of one"].model()
    one = alone(model.graph[0], model)
    assert len(one.graph) == LAYERS
    feeds = feeds_of(one, Workload(((4, 10),), fill=0.5), 4, 10)
    real = feeds["m"] != 1
    assert real.shape == (4, 10)
    assert real.sum() == pytest.approx(20, abs=2)
    assert real.all(1).sum() == 1
    assert feeds["query"].shape == (4, 10, 32)


def test_a_cache_is_one_step_of_a_decoder() -> None:
    model = CASES["cache"].model()
    feeds = feeds_of(alone(model.graph[0], model), SMALL, 2, 7)
    assert feeds["query"].shape[1] == 1
    assert feeds["past_key"].shape[2] == 6


def test_about_as_fast_is_as_fast() -> None:
    seconds = {"1x8": {"a": 1.0, "b": 1.01, "c": 2.0}, "8x8": {"a": 4.0, "b": 4.0, "c": 2.0}}
    assert relative({"1x8": seconds["1x8"]}) == {"a": 1.0, "b": 1.0, "c": 2.0}
    # Twice as slow here and twice as fast there is alike.
    assert relative(seconds)["c"] == 1.0


def test_what_was_measured_decides_before_the_table() -> None:
    names = [kernel.name for kernel in KERNELS]
    ratios = {"ai.onnx.Attention bool": 1.5, "com.microsoft.MultiHeadAttention key mask": 1.0}
    costs = Costs(((1, 1),), {"cpu": dict.fromkeys(names, 1.0)}, {"layers.0": ratios}, "2x5")
    model = Case("padding(m)", sites=2).model()
    first, second = lower(model, CPU, costs=costs)
    assert first.kernel == "com.microsoft.MultiHeadAttention"
    assert "1 times the fastest's time on this machine, at 2x5" in first.why
    assert "cost 1 on cpu" in second.why


def test_what_takes_no_site_is_not_chosen_however_fast() -> None:
    costs = Costs(((1, 1),), {"cpu": {"decomposed": 1.0}}, {"layers.0": {"ai.onnx.Attention causal": 0.1}}, "2x5")
    (done,) = lower(Case("padding(m)").model(), CPU, costs=costs)
    assert done.kernel == "decomposed"


@pytest.mark.parametrize("fastest", ["com.microsoft.MultiHeadAttention bias", "decomposed"])
def test_the_fastest_kernel_is_taken(fastest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, fastest)
    made = optimize(attention(3), packing="none", autotune=SMALL)
    (site,) = made.sites
    assert site.kernel == fastest.split()[0]
    assert "on this machine, at 2x5" in site.why
    (answer,) = made.measured
    assert (answer.fastest, answer.from_cache, answer.sites) == (fastest, False, (site.name,))
    assert answer.seconds["2x5"][fastest] == 1.0


def test_like_sites_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = timed(monkeypatch, "decomposed")
    model = Case("padding(m)", sites=3).model()
    asked = Tuner(SMALL)
    costs = asked.costs(model, CPU, "any", ())
    assert len(calls) == 1
    assert costs.measured.keys() == {"layers.0", "layers.1", "layers.2"}
    assert [answer.sites for answer in asked.answers] == [("layers.0", "layers.1", "layers.2")]


@pytest.mark.parametrize(("fastest", "packed"), [("auto", True), ("none", False)])
def test_padding_is_left_out_where_that_is_faster(fastest: str, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, fastest)
    made = optimize(attention(3), autotune=SMALL)
    assert ("padding is left out" in made.sites[0].why) == packed
    assert [answer.fastest for answer in made.measured if answer.what == "packing"] == [fastest]


def test_a_second_run_measures_nothing_and_gives_the_same(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    timed(monkeypatch, "none")
    first = optimize(attention(3), autotune=SMALL, check=False)
    calls = timed(monkeypatch, "auto")
    second = optimize(attention(3), autotune=SMALL, check=False)
    assert not calls
    assert all(answer.from_cache for answer in second.measured)
    assert ir.to_proto(first.model) == ir.to_proto(second.model)
    questions = [json.loads(path.read_text())["question"] for path in cache.iterdir()]
    assert all(question["machine"]["cpu"] and question["workload"]["shapes"] == "2x5" for question in questions)


def test_other_sizes_are_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, "auto")
    optimize(attention(3), autotune=SMALL, check=False)
    calls = timed(monkeypatch, "auto")
    optimize(attention(3), autotune=Workload(((2, 5),), fill=0.9, seconds=0.0), check=False)
    assert calls


def test_a_cache_that_cannot_be_read_is_measured_anew(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    timed(monkeypatch, "auto")
    optimize(attention(3), autotune=SMALL, check=False)
    for path in cache.iterdir():
        path.write_text("{")
    calls = timed(monkeypatch, "auto")
    assert optimize(attention(3), autotune=SMALL, check=False).measured
    assert calls


def test_a_cache_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    timed(monkeypatch, "auto")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    notes = optimize(attention(3), autotune=SMALL, check=False).notes
    assert len([note for note in notes if "can't be kept in" in note and "set XDG_CACHE_HOME" in note]) == 1


def test_a_kernel_that_fails_is_told_and_the_table_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(site_costs, "interleaved", fails)
    made = optimize(attention(3), packing="none", autotune=SMALL, check=False)
    assert any("were not measured: no room" in note for note in made.notes)
    assert "cost " in made.sites[0].why


def test_real_clocks_choose_something_that_is_proven() -> None:
    made = optimize(attention(3), autotune=SMALL)
    assert made.checked == "cpu"
    assert {answer.what for answer in made.measured} >= {"packing"}


def test_only_the_cpu_is_measured() -> None:
    with pytest.raises(OptimizeError, match=r"measures on this machine's CPU, and the target is cuda:sm80"):
        optimize(attention(3), target="cuda:sm80", autotune=SMALL)


def test_the_stopwatch_casts_inputs_and_runs_all_in_turns() -> None:
    text = """<ir_version: 10, opset_import: ["": 20]> g (float16[N] x) => (float16[N] y) { y = Identity (x) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    sessions = {"a": stopwatch.loaded(model), "b": stopwatch.loaded(model, 1)}
    times = stopwatch.interleaved(sessions, {"x": np.zeros(3, np.float32)}, 0.0)
    assert set(times) == {"a", "b"}
    assert min(times.values()) > 0


def test_the_machine_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept.machine()["cores"] >= 1
    monkeypatch.setattr(tuner, "machine", lambda: {"cpu": "another"})
    assert Tuner(SMALL)._question({})["machine"] == {"cpu": "another"}
