"""Session: inputs and outputs by name, and errors that say what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest
import torch
from maskport.runtime import DeviceUnavailable, InputError, ModelError, Session
from maskport.runtime import device as devices

MODEL = """
<ir_version: 8, opset_import: ["": 18]>
add (float[batch, seq, 4] x, float[batch, seq, 4] y)
    => (float[batch, seq, 4] total, float[batch, seq, 4] less) {
    total = Add(x, y)
    less = Sub(x, y)
}
"""


@pytest.fixture(scope="module")
def model() -> bytes:
    return onnx.parser.parse_model(MODEL).SerializeToString()


@pytest.fixture(scope="module")
def session(model: bytes) -> Session:
    return Session(model, device="cpu")


def ones(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.ones(shape, dtype)


def test_numpy_in_numpy_out(session: Session) -> None:
    assert (session.device, session.input_names, session.output_names) == (
        "cpu",
        ["x", "y"],
        ["total", "less"],
    )
    outputs = session.run({"y": ones(2, 3, 4), "x": 2 * ones(2, 3, 4)})
    assert list(outputs) == ["total", "less"]
    np.testing.assert_array_equal(outputs["total"], 3 * ones(2, 3, 4))
    np.testing.assert_array_equal(outputs["less"], ones(2, 3, 4))


def test_torch_in_torch_out(session: Session) -> None:
    x = torch.arange(24.0).reshape(2, 3, 4).requires_grad_()
    outputs = session.run({"x": x, "y": ones(2, 3, 4)})
    assert torch.equal(outputs["total"], x.detach() + 1)


def test_strides_are_respected(session: Session) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 3, 2).T
    np.testing.assert_array_equal(session.run({"x": x, "y": 0 * x})["total"], x)


def test_a_file_gives_the_same_as_its_bytes(model: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(model)
    outputs = Session(tmp_path / "m.onnx", device="cpu").run({"x": ones(1, 1, 4), "y": ones(1, 1, 4)})
    assert outputs["total"].sum() == 8


def test_denormals_are_flushed(model: bytes, tmp_path: Path) -> None:
    # The first session of a process decides, hence a process of its own.
    (tmp_path / "m.onnx").write_bytes(model)
    code = """
import sys, numpy as np
from maskport.runtime import Session
tiny = np.full((1, 1, 4), 1e-40, np.float32)
print(Session(sys.argv[1], device="cpu").run({"x": tiny, "y": 0 * tiny})["total"].max())
"""
    command = [sys.executable, "-c", code, str(tmp_path / "m.onnx")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "0.0"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"a": ones(1, 1, 4)}, r"unknown input a; missing inputs x, y; the model's inputs are x, y"),
        ({"x": ones(1, 1, 4)}, r"missing input y; the model's inputs are x, y"),
        ({"x": [[1.0]], "y": ones(1, 1, 4)}, r"'x' is of type list; give a numpy array or a torch tensor"),
        (
            {"x": ones(1, 1, 4, dtype="float64"), "y": ones(1, 1, 4)},
            r"'x' has dtype float64, the model takes float32",
        ),
        (
            {"x": ones(1, 1, 4, dtype=">f4"), "y": ones(1, 1, 4)},
            r"'x' has dtype >f4, the model takes float32",
        ),
        ({"x": ones(1, 1, 4), "y": ones(4)}, r"'y' has shape \[4\], the model takes \[batch, seq, 4\]"),
        (
            {"x": ones(1, 1, 4), "y": ones(1, 1, 5)},
            r"'y' has shape \[1, 1, 5\], the model takes \[batch, seq, 4\]",
        ),
        ({"x": ones(1, 2, 4), "y": ones(1, 3, 4)}, r"'y' has shape \[1, 3, 4\], .*; seq is 2 in 'x'"),
        (
            {"x": torch.ones(1, 1, 4).bfloat16(), "y": ones(1, 1, 4)},
            r"'x' has dtype torch.bfloat16, which numpy",
        ),
    ],
)
def test_wrong_inputs_are_named(session: Session, inputs: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        session.run(inputs)


def test_a_failing_run_shows_the_shapes(model: bytes) -> None:
    text = "g (float[n] x, int64[1] shape) => (float[m] y) { y = Reshape(x, shape) }"
    failing = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')
    with pytest.raises(ModelError, match=r"failed on x \[6\], shape \[1\]: .*Reshape"):
        Session(failing.SerializeToString(), device="cpu").run({"x": ones(6), "shape": np.array([4])})


def test_what_is_no_model_is_a_model_error(model: bytes, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("not a model")
    for wrong, message in [
        (model[:40], "can't load these 40 bytes"),
        (b"", "can't load these 0 bytes"),
        (tmp_path, "is a folder"),
        (tmp_path / "none.onnx", "is no file"),
        (tmp_path / "text.onnx", "can't load .*text.onnx"),
    ]:
        with pytest.raises(ModelError, match=message):
            Session(wrong, device="cpu")


def test_cuda_is_never_replaced_in_silence(model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "cuda_problem", lambda: "libcublasLt.so.13 is missing")
    with pytest.raises(DeviceUnavailable, match=r"'cuda:1' can't be used: libcublasLt.so.13 is missing"):
        Session(model, device="cuda:1")
    assert Session(model).device == "cpu"


def test_a_package_without_cuda_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(devices, "installed_packages", lambda: {"onnxruntime": "1"})
    assert "pip install 'maskport[cuda]'" in str(devices.cuda_problem())


def test_two_packages_are_explained(model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "version", lambda name: "1")
    with pytest.warns(RuntimeWarning, match="both installed and overwrite each other"):
        Session(model, device="cpu")


def test_an_unknown_device_is_refused(model: bytes) -> None:
    for name in ("tpu", "cuda:", "cuda:x", "cpu:0"):
        with pytest.raises(InputError, match="is unknown; use 'auto', 'cpu', 'cuda' or 'cuda:N'"):
            Session(model, device=name)
