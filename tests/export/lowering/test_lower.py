"""Sites become the kernels that the targets have, each right on every pattern of padding, masks made once for all."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import pytest
from maskport.export import inspect
from maskport.export.lowering.costs import Costs
from maskport.export.lowering.lower import lower
from maskport.export.lowering.targets import Target
from maskport.models import Mask

from .canonical_models import PATTERNS, TOLERANCES, Case, attention_node, check, lowered, operators, run, run_twins

# What carries a mask: by target, then by the mask.
CPU, SM75, SM90, SINGLE = ("cpu", "float32"), ("cuda:sm75", "float16"), ("cuda:sm90", "float16"), ("cuda", "float32")
BECOMES: dict[str, dict[tuple[str, str], str]] = {
    "full": dict.fromkeys((CPU, SM75, SM90, SINGLE), "Attention: no mask"),
    "causal": dict.fromkeys((CPU, SM75, SM90, SINGLE), "Attention: causal as an attribute"),
    "padding(m)": {
        CPU: "Attention: padding(m) as a dense mask",
        **dict.fromkeys((SM75, SM90, SINGLE), "Attention: padding(m) as a channel of the keys"),
    },
    "causal & padding(m)": {
        CPU: "Attention: causal & padding(m) as a dense mask",
        **dict.fromkeys((SM75, SM90, SINGLE), "Attention: causal as an attribute, padding(m) as a channel of the keys"),
    },
    "window(3, 0)": {
        CPU: "Attention: window(3, 0) as a dense mask",
        **dict.fromkeys((SM75, SM90), "GroupQueryAttention: the window as an attribute"),
        SINGLE: "Attention: window(3, 0) in a dense bias",
    },
    "window(3, 0) & padding(m)": {
        CPU: "Attention: window(3, 0) & padding(m) as a dense mask",
        **dict.fromkeys(
            (SM75, SM90), "GroupQueryAttention: the window as an attribute, padding(m) as a channel of the keys"
        ),
        SINGLE: "Attention: window(3, 0) & padding(m) in a dense bias",
    },
    "prefix(n)": dict.fromkeys((CPU, SM90, SINGLE), "Attention: prefix(n) as lengths of rows")
    | {SM75: "Attention: prefix(n) as a channel of the keys"},
    "causal & prefix(n)": {
        CPU: "Attention: causal & prefix(n) as a dense mask",
        SM90: "Attention: causal as an attribute, prefix(n) as a channel of the keys",
    },
    "segments(s)": {CPU: "Attention: segments(s) as a dense mask", SM90: "Attention: segments(s) in a dense bias"},
    "window(2, 2)": {CPU: "Attention: window(2, 2) as a dense mask", SM90: "Attention: window(2, 2) in a dense bias"},
    "dense(d)": {CPU: "Attention: dense(d) as a dense mask", SM90: "Attention: dense(d) in a dense bias"},
}


def becomes(case: Case, target: str, dtype: str) -> str:
    model = case.model()
    (site,) = lower(model, Target.parse(target, dtype), padding_rows="any")
    return f"{site.kernel.split('.')[-1]}: {site.why.rsplit('; ')[-1].rpartition(': cost')[0]}"


@pytest.mark.parametrize(("mask", "target", "what"), [(m, t, w) for m, row in BECOMES.items() for t, w in row.items()])
def test_what_a_mask_becomes(mask: str, target: tuple[str, str], what: str) -> None:
    assert becomes(Case(mask, kv_heads=2), *target) == what


@pytest.mark.parametrize(
    "mask", ["causal", "padding(m)", "causal & padding(m)", "window(3, 0)", "window(3, 0) & padding(m)"]
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_on_cuda_no_mask_of_these_is_dense(mask: str, dtype: str) -> None:
    model = Case(mask, kv_heads=2).model()
    lower(model, Target.parse("cuda:sm90", dtype))
    for node in model.graph:
        for value in node.outputs:
            dims = [str(d) for d in value.shape or ()]
            assert dims[-2:] != ["seq", "seq"]
    assert {"Attention", "GroupQueryAttention"} & set(operators(model))


@pytest.mark.parametrize("mask", BECOMES)
@pytest.mark.parametrize(("target", "by"), [("cpu", run), ("cuda", run_twins)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_it_becomes_is_right(mask: str, target: str, by: object, dtype: str) -> None:
    case = Case(mask, kv_heads=2, v_head_size=6, dtype=dtype)
    model, _ = lowered(case, target)
    for (batch, length), pattern in itertools.product([(3, 7), (2, 1), (1, 11)], PATTERNS):
        check(case, model, case.feeds(batch, length, pattern=pattern), by=by)


@pytest.mark.parametrize("extra", [{"softcap": 2.0}, {"sink": True}, {"bias": (1, 4, "seq", "seq")}, {"scale": -0.3}])
@pytest.mark.parametrize(("target", "by"), [("cpu", run), ("cuda:sm90", run_twins)])
def test_what_else_a_site_has_is_kept(extra: Mapping[str, object], target: str, by: object) -> None:
    for mask in ("full", "causal", "causal & padding(m)", "window(2, 0) & padding(m)", "padding(m) & segments(s)"):
        case = Case(mask, kv_heads=2, dtype="float16", **extra)  # type: ignore[arg-type]
        model, _ = lowered(case, target)
        check(case, model, case.feeds(3, 7, pattern="holes"), by=by)


def test_numbers_are_safe_in_the_type_that_the_model_will_have() -> None:
    for mask in ("padding(m)", "dense(d)", "window(3, 0) & padding(m)"):
        model = Case(mask, bias=None).model()
        lower(model, Target.parse("cuda", "float16"))
        for node in model.graph:
            if node.op_type == "Constant" and "value" in node.attributes:
                assert np.abs(node.attributes["value"].as_tensor().numpy()).max() < 6.5e4


@pytest.mark.parametrize("target", ["cuda:sm75", "cuda:sm90"])
@pytest.mark.parametrize("scale", [0.01, 0.125, 4.0])
def test_a_channel_hides_keys_from_extreme_scores(target: str, scale: float) -> None:
    """Scores of +-1e4 in float16: hidden keys weigh nothing, and rows without keys stay finite."""
    case = Case("padding(m)", q_heads=1, kv_heads=1, scale=scale, dtype="float16")
    model, (site,) = lowered(case, target)
    assert "channel" in site.why
    feeds = case.feeds(2, 6, pattern="holes")
    size = np.sqrt(1e4 / scale / 8).astype(np.float16)
    feeds["query"] = np.full_like(feeds["query"], size)
    feeds["key"] = np.where(feeds["m"][..., None] != 0, -size, size).astype(np.float16) * np.ones(8, np.float16)
    feeds["m"][1] = 0
    check(case, model, feeds, by=run_twins)
    assert np.isfinite(run(model, feeds)["y0"]).all()
    check(case, model, feeds, by=run)


@pytest.mark.parametrize("mask", ["padding(m)", "causal & padding(m)", "window(3, 0) & padding(m)"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("softcap", [0.5, 50.0])
def test_below_a_softcap_masked_keys_weigh_nothing(mask: str, dtype: str, softcap: float) -> None:
    case = Case(mask, kv_heads=2, v_head_size=6, softcap=softcap, dtype=dtype, sites=2)
    model, (site, _) = lowered(case, "cuda:sm90")
    assert "as a channel" in site.why or (dtype == "float32" and "window" in mask)
    for length, pattern in itertools.product((1, 7, 40), PATTERNS):
        feeds = case.feeds(3, length, pattern=pattern)
        check(case, model, feeds, by=run_twins)
        check(case, model, feeds)


def test_a_mask_that_layers_share_is_made_once() -> None:
    for target, mask, operator in (
        ("cpu", "causal & padding(m)", "Range"),
        ("cuda", "padding(m)", "Where"),
        ("cuda", "dense(d)", "Where"),
        ("cpu", "prefix(n)", "Min"),
        ("cuda", "window(3, 0) & padding(m)", "Expand"),
    ):
        counts = []
        for sites in (1, 5):
            model, found = lowered(Case(mask, sites=sites, dtype="float16"), target)
            assert len(found) == sites
            counts.append(operators(model).count(operator))
        assert counts[0] == counts[1] > 0


def test_masks_of_other_tensors_or_lengths_are_not_shared() -> None:
    case = Case("padding(m)")
    one, model = case.model(), Case("padding(m)", sites=2).model()
    assert len(one.graph) == 1
    second = list(model.graph)[1]
    other = ir.val("other", ir.DataType.INT64, ["batch", "seq"])
    model.graph.inputs.append(other)
    second.replace_input_with(len(second.inputs) - 1, other)
    lower(model, Target.parse("cpu"))
    feeds = case.feeds(2, 7, pattern="right")
    results = run(model, {**feeds, "other": case.feeds(2, 7, pattern="left")["m"]})
    left = {**feeds, "m": case.feeds(2, 7, pattern="left")["m"]}
    np.testing.assert_allclose(results["y0"], case.expected(feeds)[0], atol=3e-6)
    np.testing.assert_allclose(results["y1"], case.expected(left)[0], atol=3e-6)


@pytest.mark.parametrize("element", [bool, np.int32, np.int64, np.float32, np.uint8])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_padding_mask_of_any_type(element: type, target: str) -> None:
    case = Case("causal & padding(m)")
    model = case.model()
    mask = model.graph.inputs[-1]
    mask.dtype = ir.DataType.from_numpy(np.dtype(element))
    lower(model, Target.parse(target))
    feeds = case.feeds(3, 7, pattern="holes")
    results = run(model, {**feeds, "m": (feeds["m"] != 0).astype(element)})
    expected, has_key = case.expected(feeds)
    np.testing.assert_allclose(results["y0"][has_key], expected[has_key], atol=TOLERANCES["float32"])


def test_right_padding_becomes_lengths_where_it_is_granted() -> None:
    case = Case("padding(m)")
    model, (site,) = lowered(case, assume=["right-padding"])
    assert "as lengths of rows" in site.why
    assert site.assumes == [{"input": "m", "check": "right_padded", "axis": 1, "source": "--assume right-padding"}]
    for pattern in ("ones", "right", "none"):
        check(case, model, case.feeds(3, 7, pattern=pattern))


def test_without_a_grant_nothing_is_assumed() -> None:
    for mask in BECOMES:
        for padding_rows in ("keep", "any", "zero"):
            _, (site,) = lowered(Case(mask), padding_rows=padding_rows)
            assert site.assumes == []


def test_causal_and_right_padding_is_causal_on_valid_rows() -> None:
    case = Case("causal & padding(m)")
    model, (site,) = lowered(case, padding_rows="any", assume=["right-padding"])
    assert site.why.startswith("padding(m) goes: padding rows don't count, m is right_padded; causal as an attribute")
    assert "Where" not in operators(model)
    feeds = case.feeds(3, 7, pattern="right")
    check(case, model, feeds, rows=feeds["m"] != 0)
    # The operator counts causal from the last key if it is told lengths, too.
    assert len(attention_node(model, "Attention").inputs) == 3


def test_a_window_counts_the_query_itself_in_group_query_attention() -> None:
    model, _ = lowered(Case("window(3, 0)", dtype="float16"), "cuda")
    assert attention_node(model, "GroupQueryAttention").attributes["local_window_size"].as_int() == 4


def test_an_empty_batch_never_reaches_group_query_attention() -> None:
    case = Case("window(3, 0) & padding(m)", dtype="float16")
    model, (site,) = lowered(case, "cuda")
    assert site.kernel == "com.microsoft.GroupQueryAttention"
    # It ends the process on an empty batch; this test would not end.
    for by in (run_twins, run):
        assert by(model, case.feeds(0, 5))["y0"].shape == (0, 5, 32)
    static, _ = lowered(Case("window(3, 0)", dtype="float16", static={"batch": 2}), "cuda")
    assert "Slice" not in operators(static)


def test_keys_of_a_row_are_never_none_for_group_query_attention() -> None:
    model, _ = lowered(Case("window(3, 0) & padding(m)", dtype="float16"), "cuda")
    case = Case("window(3, 0) & padding(m)", dtype="float16")
    check(case, model, case.feeds(3, 7, pattern="none"))


def test_old_opsets_get_operators_that_they_have() -> None:
    for mask, says in (("full", "no mask"), ("causal", "causal as an attribute"), ("padding(m)", "as a mask of keys")):
        case = Case(mask, opset=21)
        model, (site,) = lowered(case)
        assert site.kernel == "com.microsoft.MultiHeadAttention"
        assert says in site.why
        assert site.refused["ai.onnx.Attention"] == ["needs opset 23, the model has 21"] or mask != "full"
        for pattern in PATTERNS:
            check(case, model, case.feeds(3, 7, pattern=pattern))


def test_better_kernels_say_why_not() -> None:
    _, (site,) = lowered(Case("causal & padding(m)", kv_heads=2))
    assert site.mask == "causal & padding(m)"
    assert site.refused["ai.onnx.Attention causal"] == ["takes nothing beside the window; here padding(m)"]
    assert site.refused["ai.onnx.Attention lengths"][0] == "takes no window; here the window is (-1, 0)"
    assert json.loads(json.dumps(site.refused)) == site.refused


def test_costs_decide_among_what_is_right() -> None:
    costs = Costs(((1, 8), (64, 8)), {"cpu": {"decomposed": [1.0, 9.0], "ai.onnx.Attention bool": [2.0, 2.0]}})
    for batch, kernel in ((1, "decomposed"), (64, "ai.onnx.Attention")):
        model = Case("padding(m)", static={"batch": batch}).model()
        (site,) = lower(model, Target.parse("cpu"), costs=costs)
        assert site.kernel == kernel


def test_names_types_and_places_are_kept() -> None:
    case = Case("padding(m)", sites=2)
    model = case.model()
    first, second = model.graph
    first.metadata_props["maskport.site"] = "layers.0"
    consumer = ir.node("Relu", [first.outputs[0]])
    consumer.outputs[0].name = "relu"
    model.graph.append(consumer)
    lower(model, Target.parse("cpu"))
    assert [value.name for value in model.graph.outputs] == ["y0", "y1"]
    assert [str(d) for d in model.graph.outputs[0].shape or ()] == ["batch", "seq", "32"]
    assert consumer.inputs[0] is model.graph.outputs[0]
    assert first.graph is None
    assert second.graph is None
    assert model.graph.opset_imports == {"": 24, "com.microsoft": 1}
    names = [node.name for node in model.graph if node.op_type != "Relu"]
    assert all(name and name.startswith("layers.") for name in names)
    assert len(set(names)) == len(names)
    assert model.graph.outputs[0].producer().metadata_props["maskport.site"] == "layers.0"


def test_a_model_without_sites_is_left_alone() -> None:
    model = Case().model()
    model.graph.remove(next(iter(model.graph)), safe=False)
    assert lower(model, Target.parse("cpu")) == []
    assert "com.microsoft" not in model.graph.opset_imports


@pytest.mark.parametrize(
    "mask", ["full", "causal", "padding(m)", "causal & padding(m)", "window(3, 0) & padding(m)", "prefix(n)"]
)
@pytest.mark.parametrize("opset", [24, 21])
def test_the_masks_of_a_cpu_model_are_read_back(mask: str, opset: int) -> None:
    case = Case(mask, opset=opset)
    model, _ = lowered(case)
    report = inspect(model)
    assert [site.mask for site in report.sites] == [Mask.parse(mask)]
    assert report.sites[0].verified


@pytest.mark.parametrize("mask", ["full", "causal", "padding(m)", "causal & padding(m)"])
def test_on_cuda_a_bias_is_not_repeated_for_every_row(mask: str) -> None:
    case = Case(mask, bias=(1, 4, "seq", "seq"), dtype="float16")
    model, (site,) = lowered(case, "cuda:sm90")
    assert site.why.partition(": cost")[0].endswith("the bias as it is")
    for length, pattern in itertools.product((1, 7), PATTERNS):
        check(case, model, case.feeds(3, length, pattern=pattern), by=run_twins)
    assert all(node.op_type != "Where" or len(node.outputs[0].shape or ()) == 2 for node in model.graph)
