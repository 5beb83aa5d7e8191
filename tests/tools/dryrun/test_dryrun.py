"""The report: the same for the same run, complete, and honest about what it can't know."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from maskport.tools import dryrun as by_tools
from maskport.tools.dryrun import dryrun
from maskport.tools.errors import ToolError

from ..attention_graphs import attention
from .forms import RUNNING, model_of
from .graphs import BRANCH, COMPRESSED, CUT, INPUTS, PACKED, PLAIN, UNPADDED, parse


def test_two_runs_give_the_same_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forms, values = model_of(RUNNING)
    models = [(forms, values), (parse(UNPADDED), INPUTS)]
    before = [dryrun(model, 90, inputs).dumps() for model, inputs in models]
    monkeypatch.setenv("OF_ANOTHER_SIZE", "x" * 3000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert [dryrun(model, 90, inputs).dumps() for model, inputs in models] == before


def test_the_report_of_a_small_model() -> None:
    found = dryrun(parse(PLAIN), 80, {"x": (2, 3, 8)}).to_json()
    assert json.loads(json.dumps(found)) == found
    assert found["steady"] == {
        "launches": 2,
        "library_calls": 0,
        "h2d": 1,
        "d2h": 1,
        "d2d": 0,
        "inside": {"h2d": 0, "d2h": 0, "d2d": 0},
        "syncs": 2,
        "allocations": 0,
        "memsets": 0,
        "kernels": [{"name": "_UnaryElementWise<Neg>", "count": 1}, {"name": "_UnaryElementWise<Relu>", "count": 1}],
    }
    assert (found["format"], found["model"], found["sm"], found["gpu"]) == (1, "bytes", 80, "A100")
    assert found["inputs"] == {"x": [2, 3, 8]}
    assert found["attention"] == []
    assert found["cpu_nodes"] == []
    assert found["cuda_graph"] == {"capturable": True, "reason": None}
    assert found["not_faithful"] == []
    assert [(copy["kind"], copy["bytes"], copy["where"]) for copy in found["copies"]] == [
        ("h2d", 96, "before"),
        ("d2h", 96, "after"),
    ]


def test_what_is_not_simulated_faithfully_is_named() -> None:
    model, values = model_of({"MHA none": RUNNING["MHA none"]})
    (line,) = dryrun(model, 90, values, graph=False).not_faithful
    assert line == "cudnnBackendExecute: that cuDNN takes these graphs is taken for granted; see --cudnn refuse (3)"
    lines = dryrun(parse(PACKED), 90, INPUTS, graph=False).not_faithful
    registers = "answered without the kernel's registers, so that grids may differ"
    assert [line.rpartition(" ")[0] for line in lines] == [
        f"cudaFuncGetAttributes: {registers}",
        f"cudaOccupancyMaxActiveBlocksPerMultiprocessor: {registers}",
    ]


def test_decomposed_attention_is_named_with_its_mask(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(attention(3, 5), path)
    trace = dryrun(path, 90, {"x0": (2, 7, 8), "attention_mask": (2, 7)})
    assert [(site.op_type, site.kernel, site.mask) for site in trace.attention] == [
        ("Softmax", "math", "window(3, 0) & padding(attention_mask)"),
        ("Softmax", "math", "window(5, 0) & padding(attention_mask)"),
    ]
    assert [site.name for site in trace.attention] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert all(action.node for action in trace.actions if action.launch)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PACKED, "runs but wrong: NonZero .* copies 4 bytes to the host without a wait"),
        (COMPRESSED, "runs but wrong: Compress .* copies 4 bytes to the host without a wait"),
        (UNPADDED, "RemovePadding .* calls cudaStreamSynchronize, which no capture allows"),
        (CUT, "partitioned to the CUDAExecutionProvider: MemcpyToHost "),
        (BRANCH, "control flow"),
    ],
)
def test_what_forbids_a_cuda_graph_is_named(text: str, reason: str) -> None:
    captured = dryrun(parse(text), 90, INPUTS).cuda_graph
    assert captured.capturable is False
    assert re.search(reason, captured.reason or "")


def test_nodes_on_the_cpu_and_their_copies() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]>\n'
        "cpu (float[2, 3, 3] x) => (float[2] y) { a = Relu (x) b = Det (a) y = Neg (b) }"
    )
    trace = dryrun(model.SerializeToString(), 90, graph=False)
    assert trace.cpu_nodes == ("unnamed Det 1",)
    assert (trace.copies("d2h", inside=True), trace.copies("h2d", inside=True)) == (1, 1)


def test_external_data_stays_where_it_is(tmp_path: Path) -> None:
    model = onnx.load_from_string(parse(PACKED))
    weight = onnx.numpy_helper.from_array(np.ones((8, 8), np.float16), "w")
    del model.graph.input[-1]
    model.graph.initializer.append(weight)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    trace = dryrun(tmp_path / "m.onnx", 90, {**INPUTS}, graph=False)
    assert trace.kernels()["cublasGemmEx"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.data", "m.onnx"]


def test_the_function_is_found_by_both_of_its_names() -> None:
    assert by_tools(parse(PLAIN), 75, graph=False).gpu == "T4"
    assert dryrun(parse(PLAIN), 75, graph=False).gpu == "T4"


def test_bfloat16_is_drawn_and_given_as_bits() -> None:
    text = PLAIN.replace("float16", "bfloat16")
    assert dryrun(parse(text), 90, {"x": (2, 3, 8)}, graph=False).launches == 2
    given = {"x": np.full((2, 3, 8), 0x3F80, np.uint16)}
    assert dryrun(parse(text), 90, given, graph=False).launches == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sm": 42}, r"^sm 42 is unknown; give one of 75 \(T4\), 80 "),
        ({"cudnn": "new"}, r"^cudnn is 'new'; use accept, refuse, old, absent$"),
        ({"inputs": {"z": (1, 2)}}, r"^inputs has z; the model's inputs are x$"),
        ({"inputs": {"x": (1, 2)}}, r"gives 'x' 2 dimensions"),
        ({"inputs": {"x": np.ones((1, 2, 8))}}, r"^input 'x' is float64, the model takes float16 \[batch, seq, 8\]"),
        ({"model": b"no model at all"}, "is damaged, cut short, or no ONNX model"),
        ({"cuda_options": {"no_such_option": 1}}, "no_such_option"),
    ],
)
def test_what_can_not_be_run_is_told(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ToolError, match=message):
        dryrun(**{"model": parse(PLAIN), "graph": False, **arguments})


def test_a_model_that_onnx_runtime_refuses() -> None:
    text = "m (float16[2, 8] x) => (float16[2, 8] y) { y = com.microsoft.NoSuchOperator (x) }"
    with pytest.raises(ToolError, match=r"^ONNX Runtime refuses to run the model on CUDA: .*NoSuchOperator"):
        dryrun(parse(text))


def test_a_child_that_takes_too_long_or_too_much_is_stopped() -> None:
    with pytest.raises(ToolError, match=r"took longer than 0\.01 s"):
        dryrun(parse(PLAIN), seconds=0.01)
    with pytest.raises(ToolError, match=r"doesn't load with the stand-in|ended by"):
        dryrun(parse(PLAIN), memory=30 << 20)
