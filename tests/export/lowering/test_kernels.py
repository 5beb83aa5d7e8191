"""Each kernel of the table, forced, gives what float64 gives, and refuses what it would get wrong."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from maskport.export.lowering.asked import Asked
from maskport.export.lowering.kernels import DECOMPOSED, KERNELS, Kernel, refusals
from maskport.export.lowering.targets import Target

from .canonical_models import PATTERNS, Case, attention_node, check, lowered, operators, run, run_twins
from .kernels_page import kernel_rows, mask_rows

BY_NAME = {kernel.name: kernel for kernel in KERNELS}
# A mask that each way of telling one carries.
WINDOW_TEXT = {"none": "", "causal": "causal", "local": "window(3, 0)", "any": "window(1, 2)"}
REST_TEXT = {"none": "", "lengths": "prefix(n)", "channel": "padding(m)", "key mask": "padding(m)"}
DENSE = "padding(m)"
EVERY_MASK = (
    "full",
    "causal",
    "padding(m)",
    "causal & padding(m)",
    "window(3, 0) & padding(m)",
    "window(2, 1)",
    "chunked(3) & padding(m)",
    "causal & segments(s)",
    "(causal | prefix(n)) & padding(m != 2)",
    "adjacency(a)",
    "dense(d)",
    "query_padding(m) & ~padding(m)",
)
# Whose CPU kernel the kernels of CUDA agree with, as far as the twins tell.
PROVIDERS = (("cpu", run), ("cuda:sm80", run_twins))


def mask_of(kernel: Kernel) -> str:
    return " & ".join(filter(None, [WINDOW_TEXT[kernel.window], REST_TEXT.get(kernel.rest, DENSE)])) or "full"


def case_of(kernel: Kernel, dtype: str) -> Case:
    features = kernel.takes
    return Case(
        mask_of(kernel),
        kv_heads=2 if "groups" in features else 4,
        softcap=2.0 if "softcap" in features else 0.0,
        sink="sink" in features and "softcap or sink" not in kernel.needs,
        bias=(1, 4, "seq", "seq") if "bias" in features else None,
        dtype=dtype,
        static={"batch": 3},
    )


def runnable() -> list[tuple[str, str, str]]:
    return [
        (kernel.name, provider, dtype)
        for kernel in KERNELS
        for provider, _ in PROVIDERS
        for dtype in ("float32", "float16")
        if dtype in (kernel.types[provider.partition(":")[0]] or ("float32", "float16"))
    ]


@pytest.mark.parametrize(("name", "provider", "dtype"), runnable())
def test_each_kernel_with_all_that_it_takes(name: str, provider: str, dtype: str) -> None:
    case = case_of(BY_NAME[name], dtype)
    if "keys % 8" in BY_NAME[name].needs:
        case = replace(case, static={"batch": 3, "seq": 8})
    model, (site,) = lowered(case, provider, kernel=name)
    assert site.kernel == BY_NAME[name].operator
    for length, pattern in itertools.product((8,) if "seq" in case.static else (1, 5, 11), PATTERNS):
        check(case, model, case.feeds(3, length, pattern=pattern), by=dict(PROVIDERS)[provider])


@pytest.mark.parametrize("mask", EVERY_MASK)
@pytest.mark.parametrize("name", [kernel.name for kernel in KERNELS if kernel.dense])
def test_what_takes_any_mask_takes_any(name: str, mask: str) -> None:
    case = Case(mask, bias=None)
    model, (site,) = lowered(case, kernel=name)
    assert site.kernel == BY_NAME[name].operator
    for length, pattern in itertools.product((1, 7), PATTERNS):
        check(case, model, case.feeds(2, length, pattern=pattern))


@pytest.mark.parametrize(
    "bias", [(1, 4, "seq", "seq"), ("batch", 1, "seq", "seq"), ("batch", 4, 1, "seq"), (1, 1, 1, 1)]
)
@pytest.mark.parametrize("name", [kernel.name for kernel in KERNELS if "bias" in kernel.takes])
def test_a_bias_of_any_broadcast_is_right_for_more_than_one_row(name: str, bias: tuple[int | str, ...]) -> None:
    case = Case("causal & padding(m)", bias=bias)
    model, _ = lowered(case, kernel=name)
    check(case, model, case.feeds(3, 7, pattern="holes"))


@pytest.mark.parametrize("name", [kernel.name for kernel in KERNELS if "past" in kernel.takes])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_cache_is_read_and_given_back(name: str, dtype: str) -> None:
    kernel = BY_NAME[name]
    case = Case(mask_of(kernel), kv_heads=2, v_head_size=5, past=True, dtype=dtype)
    model, (site,) = lowered(case, kernel=name)
    assert site.kernel == kernel.operator
    for past, new in ((4, 3), (6, 1), (0, 5)):
        feeds = case.feeds(2, new, past=past, pattern="left")
        check(case, model, feeds)
        heads = feeds["key"].reshape(2, new, 2, 8).transpose(0, 2, 1, 3)
        np.testing.assert_array_equal(
            run(model, feeds)["present_key0"], np.concatenate([feeds["past_key"], heads], axis=2)
        )


@pytest.mark.parametrize("name", [kernel.name for kernel in KERNELS if "cross" in kernel.takes])
@pytest.mark.parametrize(("queries", "keys"), [(5, 9), (9, 5)])
def test_keys_of_another_sequence(name: str, queries: int, keys: int) -> None:
    kernel = BY_NAME[name]
    case = Case(mask_of(kernel), v_head_size=6, cross=True)
    model, (site,) = lowered(case, kernel=name)
    assert site.kernel == kernel.operator
    for pattern in PATTERNS:
        check(case, model, case.feeds(2, queries, keys, pattern=pattern))


@pytest.mark.parametrize("name", [kernel.name for kernel in KERNELS if "groups" in kernel.takes])
def test_groups_of_heads_are_not_expanded(name: str) -> None:
    case = replace(case_of(BY_NAME[name], "float32"), q_heads=8, sink=False, bias=None)
    model, _ = lowered(case, kernel=name)
    assert "Tile" not in operators(model)
    if name != DECOMPOSED:
        node = attention_node(model, BY_NAME[name].operator.split(".")[-1])
        assert node.inputs[1].shape[-1] % 2 == 0
        assert node.attributes["kv_num_heads"].as_int() == 2


def reasons(name: str, case: Case, target: str = "cpu", dtype: str | None = None) -> list[str]:
    parsed = Target.parse(target, dtype)
    (node,) = (node for node in case.model().graph)
    return refusals(BY_NAME[name], Asked.of(node, dtype, case.opset), parsed)


MULTI_HEAD, GROUP_QUERY = "com.microsoft.MultiHeadAttention", "com.microsoft.GroupQueryAttention"


@pytest.mark.parametrize(
    ("name", "case", "target", "dtype", "says"),
    [
        # The operator reads [B] lengths beside causal from the last key on.
        ("ai.onnx.Attention lengths", Case("causal & prefix(n)"), "cpu", None, "takes no window"),
        ("ai.onnx.Attention lengths", Case("padding(m)"), "cpu", None, "is none as far as is known"),
        ("ai.onnx.Attention lengths", Case("prefix(n) | adjacency(a)"), "cpu", None, "is none as far as is known"),
        ("ai.onnx.Attention lengths", Case("~prefix(n)"), "cpu", None, "is none as far as is known"),
        ("ai.onnx.Attention lengths", Case("prefix(n)", opset=23), "cpu", None, "needs opset 24"),
        ("ai.onnx.Attention", Case(opset=21), "cpu", None, "needs opset 23, the model has 21"),
        ("ai.onnx.Attention", Case(sink=True), "cpu", None, "has no sink"),
        ("ai.onnx.Attention", Case(scale=-1.0), "cpu", None, "above 0"),
        ("ai.onnx.Attention channel & own bias", Case("padding(m)", softcap=2.0), "cuda", None, "has no softcap"),
        (
            "com.microsoft.GroupQueryAttention causal & channel",
            Case("causal & padding(m)", softcap=2.0, sink=True),
            "cuda",
            "float16",
            "beside a sink",
        ),
        ("ai.onnx.Attention channel", Case("padding(m)", past=True), "cuda", None, "takes no cache here"),
        ("ai.onnx.Attention channel", Case("chunked(3)"), "cuda", None, "depends on the query"),
        ("ai.onnx.Attention channel", Case("padding(m)", scale=1e-6), "cuda", "float16", "no number for a masked key"),
        (f"{MULTI_HEAD} causal", Case("causal", cross=True), "cpu", None, "own sequence only"),
        (MULTI_HEAD, Case(kv_heads=2), "cpu", None, "groups of heads"),
        (MULTI_HEAD, Case(dtype="float16"), "cpu", None, "runs float32 on CPU, not float16"),
        (f"{MULTI_HEAD} bias", Case("dense(d)"), "cuda", "float16", "a multiple of 8 keys"),
        (f"{MULTI_HEAD} bias", Case("dense(d)", static={"seq": 12}), "cuda", "float16", "here they are 12"),
        # The process ends on an empty batch.
        (f"{GROUP_QUERY} causal", Case("causal"), "cpu", None, "an empty batch ends the process"),
        (f"{GROUP_QUERY} causal", Case("causal", static={"batch": 0}), "cpu", None, "an empty batch ends the process"),
        (f"{GROUP_QUERY} causal", Case("causal", static={"batch": 2}), "cuda", "float32", "runs float16, bfloat16"),
        (f"{GROUP_QUERY} local", Case("window(3, 1)"), "cuda", "float16", "here the window is (3, 1)"),
        (f"{GROUP_QUERY} local", Case("window(3, 0)", sink=True), "cuda", "float16", "one key more than the window"),
        (f"{GROUP_QUERY} causal", Case("causal", past=True), "cuda", "float16", "takes no cache here"),
    ],
)
def test_a_kernel_says_why_not(name: str, case: Case, target: str, dtype: str | None, says: str) -> None:
    assert any(says in reason for reason in reasons(name, case, target, dtype))


def test_all_reasons_are_said() -> None:
    case = Case("chunked(3)", kv_heads=2, softcap=2.0, sink=True, opset=21, cross=True, dtype="float16")
    assert len(reasons(f"{MULTI_HEAD} causal", case)) >= 6


@pytest.mark.parametrize("target", ["cpu", "cuda", "cuda:sm90"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_decomposed_attention_takes_everything(target: str, dtype: str) -> None:
    case = Case("chunked(3)", kv_heads=2, softcap=2.0, sink=True, past=True, bias=(1,), opset=18, scale=-1.0)
    assert not reasons(DECOMPOSED, case, target, dtype)


def test_without_causal_group_query_attention_is_never_made() -> None:
    # CUDA attends the padding of the first prompt there.
    assert {kernel.window for kernel in KERNELS if kernel.operator == GROUP_QUERY} == {"causal", "local"}
    for mask in EVERY_MASK:
        for target in ("cpu", "cuda", "cuda:sm90"):
            model, _ = lowered(Case(mask, dtype="float16", static={"batch": 2}), target)
            for node in model.graph:
                assert node.op_type != "GroupQueryAttention" or "causal" not in node.attributes


def test_the_page_shows_the_tables(root: Path) -> None:
    page = (root / "docs/kernels.md").read_text().splitlines()
    assert [row for row in (*kernel_rows(), *mask_rows()) if row not in page] == []


def test_group_query_attention_is_causal_in_every_row_of_the_table() -> None:
    # Without it, CUDA's fast kernels attend the padding of a first prompt.
    assert {kernel.window for kernel in KERNELS if "GroupQuery" in kernel.operator} == {"causal", "local"}
