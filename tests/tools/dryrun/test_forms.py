"""Which attention kernel each operator gets on which GPU, as the CUDA provider itself decides."""

from __future__ import annotations

import re
from typing import Any

import pytest
from maskport.tools.dryrun import Trace, dryrun, run
from maskport.tools.dryrun.process import run_child
from maskport.tools.errors import ToolError
from onnx import TensorProto

from .forms import BROADCAST, FORMS, RUNNING, Form, model_of

CUDNN_CHOSEN = {name for name in FORMS if name.startswith(("MHA", "GQA"))} - {"MHA 2D mask", "MHA [3B+2]", "GQA window"}

# Kernel and launches of float16, B4 S256, 12 heads of 64, on sm 75, 80, 90, and 90 with a cuDNN before 9.3.
COLUMNS = {"75": (75, "accept"), "80": (80, "accept"), "90": (90, "accept"), "90 old": (90, "old")}
SHORT = {"flash": "flash", "mem": "memory_efficient", "math": "math", "cudnn": "cudnn", "trt": "trt"}
TABLE = {
    "Attention none": "mem 1, flash 1, flash 1, flash 1",
    "Attention causal": "mem 1, flash 1, flash 1, flash 1",
    "Attention softcap": "mem 1, flash 1, flash 1, flash 1",
    "Attention bool [B,1,S,S]": "mem 3, mem 3, mem 3, mem 3",
    "Attention bool [B,1,S,S] causal": "mem 3, mem 3, mem 3, mem 3",
    "Attention bool [S,S]": "mem 3, mem 3, mem 3, mem 3",
    "Attention bias": "mem 2, mem 2, mem 2, mem 2",
    "Attention lengths": "mem 3, flash 2, flash 2, flash 2",
    "Attention lengths causal": "mem 4, flash 2, flash 2, flash 2",
    "Attention 4-D causal": "mem 3, flash 3, flash 3, flash 3",
    "Attention 4 KV heads causal": "mem 3, flash 1, flash 1, flash 1",
    "Attention decode": "mem 5, flash 5, flash 5, flash 5",
    "MHA none": "trt 2, flash 1, cudnn 1, flash 1",
    "MHA causal": "mem 1, flash 1, cudnn 1, flash 1",
    "MHA lengths": "trt 3, trt 3, cudnn 2, math 7",
    "MHA lengths causal": "math 7, math 7, cudnn 2, math 7",
    "MHA 2D mask": "math 7, math 7, math 7, math 7",
    "MHA [3B+2]": "mem 2, mem 2, mem 2, mem 2",
    "MHA bias": "mem 1, mem 1, cudnn 1, mem 1",
    "GQA causal": "mem 3, flash 3, cudnn 3, flash 3",
    "GQA causal=0": "mem 3, flash 3, cudnn 3, flash 3",
    "GQA window": "mem 3, flash 3, flash 3, flash 3",
    "GQA decode, 4 KV heads": "mem 5, flash 4, cudnn 4, flash 4",
    "PackedMHA": "trt 2, flash 1, flash 1, flash 1",
}


def traced(forms: dict[str, Form], sm: int, cudnn: str = "accept", float_type: int = TensorProto.FLOAT16) -> Trace:
    model, values = model_of(forms, float_type)
    return dryrun(model, sm, values, cudnn=cudnn, graph=False)


def kernels(trace: Trace) -> dict[str, str]:
    short = {kind: name for name, kind in SHORT.items()}
    return {site.node: f"{short[site.kernel]} {site.launches}" for site in trace.attention}


@pytest.mark.parametrize(("place", "column"), list(enumerate(COLUMNS)))
def test_the_table_of_forms_and_devices(place: int, column: str) -> None:
    trace = traced(RUNNING, *COLUMNS[column])
    assert kernels(trace) == {name: row.split(", ")[place] for name, row in TABLE.items()}
    assert sum(site.launches for site in trace.attention) == trace.launches


# A device with fewer multiprocessors doesn't split the keys of a decode step, and need not join the parts.
UNSPLIT = {"GQA decode, 4 KV heads": "flash 3", "Attention decode": "flash 4"}


@pytest.mark.parametrize(("sm", "changed"), [(86, UNSPLIT), (89, UNSPLIT), (120, {})])
def test_other_devices_are_as_their_neighbours(sm: int, changed: dict[str, str]) -> None:
    like = 2 if sm >= 90 else 1
    expected = {name: row.split(", ")[like] for name, row in TABLE.items()}
    assert kernels(traced(RUNNING, sm)) == {**expected, **changed}


def test_float32_does_not_depend_on_the_device() -> None:
    forms = {name: form for name, form in RUNNING.items() if form.op_type in ("Attention", "MultiHeadAttention")}
    unfused = {"Attention 4 KV heads causal", "Attention decode", "MHA lengths", "MHA lengths causal", "MHA 2D mask"}
    for sm in (75, 90):
        found = {site.node: site.kernel for site in traced(forms, sm, float_type=TensorProto.FLOAT).attention}
        assert found == {name: "math" if name in unfused else "memory_efficient" for name in forms}


def test_a_mask_that_must_be_broadcast_is_refused() -> None:
    with pytest.raises(ToolError, match=r"^ONNX Runtime refuses to run the model on CUDA: .*Attention"):
        traced({BROADCAST: FORMS[BROADCAST]}, 90)


@pytest.mark.parametrize("name", ["MHA none", "GQA causal"])
def test_a_graph_that_cudnn_refuses_has_no_other_kernel(name: str) -> None:
    with pytest.raises(ToolError, match="Failed to build cuDNN graph"):
        traced({name: FORMS[name]}, 90, "refuse")


def test_what_does_not_choose_cudnn_does_not_mind_its_refusal() -> None:
    forms = {name: form for name, form in RUNNING.items() if name not in CUDNN_CHOSEN}
    assert kernels(traced(forms, 90, "refuse")) == {name: TABLE[name].split(", ")[2] for name in forms}
    assert kernels(traced(RUNNING, 80, "refuse")) == {name: row.split(", ")[1] for name, row in TABLE.items()}


def test_multi_head_attention_needs_cudnn_at_any_device() -> None:
    with pytest.raises(ToolError, match=r"(?i)cudnn"):
        traced({"MHA none": FORMS["MHA none"]}, 80, "absent")
    assert kernels(traced({"Attention none": FORMS["Attention none"]}, 90, "absent")) == {"Attention none": "flash 1"}


@pytest.mark.parametrize(
    ("choice", "kernel"), [(1, "flash"), (2, "memory_efficient"), (8, "cudnn"), (16, "math"), (0, "cudnn")]
)
def test_the_report_follows_the_providers_option(choice: int, kernel: str) -> None:
    model, values = model_of({"MHA none": FORMS["MHA none"]})
    trace = dryrun(model, 90, values, cuda_options={"sdpa_kernel": choice}, graph=False)
    assert [site.kernel for site in trace.attention] == [kernel]


def test_why_there_is_no_better_kernel() -> None:
    why = {site.node: site.why for site in traced(RUNNING, 90).attention}
    better = {name for name, row in TABLE.items() if row.split(", ")[2].startswith(("flash", "cudnn"))}
    assert {name for name, reason in why.items() if reason is None} == better
    assert why["Attention bias"] == "an attn_mask rules out Flash and cuDNN"
    assert why["MHA 2D mask"].startswith("a key mask rules out Flash; a key mask of lengths reaches ")
    why = {site.node: site.why for site in traced(RUNNING, 75).attention}
    assert why["Attention causal"] == why["PackedMHA"] == why["GQA window"] == "Flash needs sm 80 or later"
    forms = {"Attention causal": FORMS["Attention causal"]}
    only = traced(forms, 90, float_type=TensorProto.FLOAT).attention
    assert [site.why for site in only] == ["Flash and cuDNN take half precisions only"]


# What ONNX Runtime prints of its choice, where it is told to, and what the kernels' names say.
SAID = {
    "FLASH_ATTENTION": "flash",
    "CUDNN_FLASH_ATTENTION": "cudnn",
    "EFFICIENT_ATTENTION": "memory_efficient",
    "TRT_FUSED_ATTENTION": "trt",
    "TRT_FLASH_ATTENTION": "trt",
    "MATH": "math",
}


@pytest.mark.parametrize("column", COLUMNS)
def test_onnx_runtime_says_the_same_of_its_choice(column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def listening(*arguments: Any, **options: Any) -> dict[str, Any]:
        result = run_child(*arguments, **options)
        said.append(result["said"])
        return result

    monkeypatch.setattr(run, "run_child", listening)
    monkeypatch.setenv("ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO", "1")
    trace = traced(RUNNING, *COLUMNS[column])
    choices = dict(re.findall(r"Node=(.+?) DataType=\S+ SdpaKernel=(\w+)", said[-1]))
    assert {node: SAID[choice] for node, choice in choices.items()} == {
        site.node: site.kernel for site in trace.attention
    }
