"""The session's host code on the null device: placement, binding, CUDA graphs; what runs elsewhere is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from maskport.tools.dryrun.call import Called
from maskport.tools.errors import ToolError

NullDevice = Callable[..., Called]
MODEL = """<ir_version: 10, opset_import: ["" : 18]>
plain (float[batch, 8] x) => (float[batch, 8] y) { a = Relu (x) y = Neg (a) }"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    return str(path)


def run_a_session(path: str) -> dict[str, Any]:
    from maskport.runtime import Session

    session = Session(path, device="cuda")
    outputs = session.run({"x": np.ones((3, 8), np.float32)})
    providers = sorted({node.provider for node in session.placement()})
    return {"device": session.device, "shape": list(outputs["y"].shape), "providers": providers}


def capture_a_graph(path: str) -> int:
    import onnxruntime as ort

    providers: list[Any] = [("CUDAExecutionProvider", {"enable_cuda_graph": "1"})]
    session = ort.InferenceSession(path, providers=providers)
    binding = session.io_binding()
    x = ort.OrtValue.ortvalue_from_numpy(np.ones((3, 8), np.float32), "cuda", 0)
    y = ort.OrtValue.ortvalue_from_shape_and_type([3, 8], np.float32, "cuda", 0)
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for _ in range(5):
        session.run_with_iobinding(binding)
    return 5


def fail(word: str) -> None:
    raise ValueError(f"a {word}")


def crash() -> None:
    import ctypes

    ctypes.string_at(0)


def test_a_session_runs_on_the_null_device(null_device: NullDevice, model: str) -> None:
    called = null_device(run_a_session, model)
    assert called.value == {"device": "cuda:0", "shape": [3, 8], "providers": ["CUDAExecutionProvider"]}
    assert called.count("kernel") == 2
    assert called.count("copy", "h2d") == called.count("copy", "d2h") == 1


def test_a_cuda_graph_is_captured_once_and_replayed(null_device: NullDevice, model: str) -> None:
    called = null_device(capture_a_graph, model)
    assert called.count("capture", "begin") == called.count("capture", "end") == 1
    assert called.count("graph", "cudaGraphLaunch") == called.value
    assert sum(line.captured for line in called.log) == 2


def test_what_a_function_raises_is_told(null_device: NullDevice) -> None:
    with pytest.raises(AssertionError, match=r"fail failed on the null device(?s:.*)ValueError: a word"):
        null_device(fail, "word")


def test_a_crash_does_not_reach_the_caller(null_device: NullDevice) -> None:
    with pytest.raises(ToolError, match="ended by SIGSEGV"):
        null_device(crash)
