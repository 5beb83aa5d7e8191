"""Tokens that the caller names, on CUDA by dry runs: nothing is read back, and the run can be captured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from maskport.export import optimize
from maskport.models import Causal, KeyPadding, Segments, Window
from maskport.tools.dryrun import Trace, dryrun
from maskport.tools.dryrun.call import Called

from ...zoo.models import Zoo
from .run_packed import run_packed
from .test_host import BOTH, POOLED, TWO_LAYERS
from .token_models import mask_model, model

BATCH, LENGTH, SM = 4, 32, 90
# 64 in all, so that nothing is rounded up.
REAL = (32, 20, 9, 3)
TARGET, DTYPE = "cuda:sm90", "float16"
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "padding": lambda: model(attention=TWO_LAYERS),
    "causal": lambda: mask_model(Causal() & KeyPadding("m"), layers=2),
    "a window": lambda: mask_model(Window(2, 1) & KeyPadding("m"), layers=2),
    "segments": lambda: mask_model(Segments("s") & KeyPadding("m"), layers=2),
    "a first token that is picked": lambda: model(POOLED, attention=TWO_LAYERS, outputs=BOTH),
}


def optimized(source: onnx.ModelProto | Path, packing: str, path: Path) -> Path:
    optimize(source, path, target=TARGET, dtype=DTYPE, padding_rows="zero", packing=packing, check=False)
    return path


def traced(path: Path) -> Trace:
    """Run a file dry on rows of different lengths; the dry run computes what tells the tokens as the session does."""
    proto = onnx.load(path)
    mask = (np.arange(LENGTH) < np.array(REAL)[:, None]).astype(np.int64)
    inputs: dict[str, np.ndarray] = {}
    for value in proto.graph.input:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if value.name.endswith(("m", "mask")):
            inputs[value.name] = mask
        elif len(dims) >= 2:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            inputs[value.name] = np.ones([BATCH, LENGTH, *dims[2:]], dtype)
    trace = dryrun(path, SM, inputs)
    if "m.tokens" in trace.inputs:
        assert trace.inputs["m.tokens"] == (sum(REAL),)
    return trace


def inside(trace: Trace) -> int:
    return trace.copies("h2d", inside=True) + trace.copies("d2h", inside=True)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("null_device")
def test_nothing_is_read_back_and_the_run_can_be_captured(name: str, tmp_path: Path) -> None:
    found = traced(optimized(MODELS[name](), "host", tmp_path / "host.onnx"))
    assert inside(found) == 0
    assert found.cuda_graph.capturable, found.cuda_graph.reason
    # Groups of segments are counted on the device, so that here they are a mask.
    by_mask = name in ("a window", "segments")
    assert {site.kernel for site in found.attention} == {"memory_efficient" if by_mask else "flash"}


@pytest.mark.usefixtures("null_device")
def test_tokens_that_the_graph_counts_are_read_back_and_cost_launches(tmp_path: Path) -> None:
    given, counted = (
        traced(optimized(MODELS["padding"](), packing, tmp_path / f"{packing}.onnx")) for packing in ("host", "auto")
    )
    assert inside(counted) > 0
    assert not counted.cuda_graph.capturable
    assert given.launches < counted.launches


@pytest.mark.usefixtures("null_device")
def test_bert_can_be_captured(zoo: Zoo, tmp_path: Path) -> None:
    found = traced(optimized(Path(zoo("bert", 23).path), "host", tmp_path / "bert.onnx"))
    assert {site.kernel for site in found.attention} == {"flash"}
    assert inside(found) == 0
    assert found.cuda_graph.capturable, found.cuda_graph.reason


@pytest.mark.parametrize("tensors", [False, True])
def test_a_session_copies_its_inputs_and_outputs_alone(
    null_device: Callable[..., Called], tmp_path: Path, tensors: bool
) -> None:
    path = optimized(MODELS["padding"](), "host", tmp_path / "host.onnx")
    assert [value.name for value in ir.load(path).graph.inputs] == ["x", "m", "m.tokens", "m.lengths"]
    once, twice = (null_device(run_packed, str(path), runs, tensors) for runs in (1, 2))
    assert once.value == twice.value == [2, 5, 16]
    assert twice.count("copy", "h2d") - once.count("copy", "h2d") == 4
    assert (once.count("copy", "d2h"), twice.count("copy", "d2h")) == (1, 2)
