"""Binding: torch tensors in and out, where they are, without a copy on the way."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx.parser
import pytest
import torch
from maskport.runtime import InputError, Session
from maskport.runtime.binding import run_bound
from maskport.runtime.element_types import ELEMENT_TYPES
from maskport.runtime.load import load
from maskport.runtime.options import session_options

HEAD = '<ir_version: 10, opset_import: ["": 18]> '
# ONNX's text names of the types that differ from ONNX Runtime's.
TYPES = {name: name.removeprefix("tensor(").removesuffix(")") for name in ELEMENT_TYPES}


def built(text: str) -> bytes:
    return onnx.parser.parse_model(HEAD + text).SerializeToString()


def identity(kind: str) -> bytes:
    return built(f"g ({kind}[n, m] x) => ({kind}[n, m] y) {{ y = Identity(x) }}")


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_every_element_type_goes_through(name: str) -> None:
    dtype = getattr(torch, ELEMENT_TYPES[name].torch.removeprefix("torch."))
    x = torch.tensor([[1, 0, 1], [0, 0, 7]]).to(dtype)
    y = Session(identity(TYPES[name]), device="cpu").run({"x": x})["y"]
    assert y.dtype == dtype
    assert torch.equal(y, x)


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_the_table_is_onnxs(name: str) -> None:
    element = ELEMENT_TYPES[name]
    assert onnx.TensorProto.DataType.Name(element.onnx).lower() == TYPES[name]
    if element.numpy is not None:
        assert onnx.helper.tensor_dtype_to_np_dtype(element.onnx) == element.numpy


def test_inputs_are_read_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(built("g (float[n] x, float[n] y) => (float[n] z) { z = Add(x, y) }"), device="cpu")
    pointers = {}
    bind = type(session._session.io_binding()).bind_input

    def record(self: Any, name: str, *arguments: Any) -> None:
        pointers[name] = arguments[-1]
        bind(self, name, *arguments)

    monkeypatch.setattr(type(session._session.io_binding()), "bind_input", record)
    inputs = {"x": torch.arange(5.0), "y": torch.ones(5)}
    assert session.run(inputs)["z"].tolist() == [1, 2, 3, 4, 5]
    assert pointers == {name: tensor.data_ptr() for name, tensor in inputs.items()}


def test_numpy_arrays_may_be_among_tensors() -> None:
    session = Session(
        built("g (float[n] x, int64[k] axes) => (float[a, b] y) { y = Unsqueeze(x, axes) }"), device="cpu"
    )
    y = session.run({"x": torch.ones(3), "axes": np.array([0])})["y"]
    assert isinstance(y, torch.Tensor)
    assert y.shape == (1, 3)


def test_outputs_are_the_callers_own() -> None:
    text = "g (float[n] x) => (float[n] y, float[2] w) <float[2] w = {1, 2}> { y = Abs(x) }"
    session = Session(built(text), device="cpu")
    first = session.run({"x": torch.ones(3)})
    kept = first["y"].clone()
    first["w"].zero_()
    second = session.run({"x": 2 * torch.ones(3)})
    assert torch.equal(first["y"], kept)
    assert second["w"].tolist() == [1, 2]
    del session
    second["y"] += 1
    assert second["y"].tolist() == [3, 3, 3]


def test_only_the_outputs_that_are_asked_for() -> None:
    session = Session(built("g (float[n] x) => (float[n] y, float[n] z) { y = Abs(x) z = Neg(x) }"), device="cpu")
    assert list(session.run({"x": torch.ones(1)}, ["z"])) == ["z"]


# The order of events on a device, which the CPU doesn't show: what stands for torch and ONNX Runtime writes it down.


class Tensor:
    def __init__(self, log: list[str], device: Any) -> None:
        self.log, self.device, self.dtype, self.shape = log, device, "torch.float32", (2, 3)

    def data_ptr(self) -> int:
        return 64

    def clone(self) -> Tensor:
        self.log.append("clone")
        return Tensor(self.log, self.device)


def test_the_order_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    device, host = SimpleNamespace(type="cuda", index=1), SimpleNamespace(type="cpu", index=None)

    def note(text: str) -> Any:
        return lambda *arguments: log.append(" ".join([text, *map(str, arguments)]))

    output = SimpleNamespace(is_tensor=lambda: True, data_type=lambda: "tensor(float)")
    binding = SimpleNamespace(
        bind_input=note("input"),
        bind_cpu_input=note("host input"),
        bind_output=note("output"),
        synchronize_inputs=note("inputs ready"),
        synchronize_outputs=note("outputs ready"),
        get_outputs=lambda: [output],
    )
    stream = SimpleNamespace(synchronize=note("wait for torch"))
    fake = SimpleNamespace(
        cuda=SimpleNamespace(current_stream=lambda where: stream if where is device else None),
        device=lambda name: host,
        from_dlpack=lambda value: Tensor(log, device),
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    session: Any = SimpleNamespace(io_binding=lambda: binding, run_with_iobinding=lambda _: log.append("run"))
    run_bound(session, {"mask": Tensor(log, host), "x": Tensor(log, device)}, ["y"])
    assert log == [
        "wait for torch",
        "input mask cpu 0 1 (2, 3) 64",
        "input x cuda 1 1 (2, 3) 64",
        "output y cuda 1",
        "inputs ready",
        "run",
        "outputs ready",
        "clone",
        "wait for torch",
    ]


# On a machine that has a device.


@pytest.fixture
def on_cuda() -> Session:
    text = "g (float[n, m] x, int64[n, m] mask) => (float[n, m] y, bool[n, m] real, int64[n, m] m1)"
    body = "{ f = Cast <to = 1> (mask) y = Mul(x, f) real = Cast <to = 9> (mask) m1 = Abs(mask) }"
    return Session(built(text + body), device="cuda")


@pytest.mark.gpu
def test_cuda_in_cuda_out(on_cuda: Session) -> None:
    x, mask = torch.randn(3, 5, device="cuda"), torch.randint(0, 2, (3, 5), device="cuda")
    outputs = on_cuda.run({"x": x, "mask": mask})
    assert {str(tensor.device) for tensor in outputs.values()} == {on_cuda.device}
    assert torch.equal(outputs["y"], x * mask)
    assert torch.equal(outputs["real"], mask.bool())
    assert {node.provider for node in on_cuda.placement()} == {"CUDAExecutionProvider"}


@pytest.mark.gpu
def test_the_host_in_the_host_out_of_cuda(on_cuda: Session) -> None:
    x, mask = torch.randn(3, 5), torch.randint(0, 2, (3, 5))
    assert torch.equal(on_cuda.run({"x": x, "mask": mask})["y"], x * mask)
    np.testing.assert_array_equal(on_cuda.run({"x": x.numpy(), "mask": mask.numpy()})["y"], x * mask)
    assert on_cuda.run({"x": x.cuda(), "mask": mask})["y"].is_cuda


@pytest.mark.gpu
def test_runs_wait_for_torchs_kernels_and_outputs_are_never_overwritten(on_cuda: Session) -> None:
    mask = torch.ones(2048, 2048, dtype=torch.int64, device="cuda")
    a = torch.randn(2048, 2048, device="cuda") / 45
    stream = torch.cuda.Stream()
    for _ in range(20):
        with torch.cuda.stream(stream):
            x = a
            for _ in range(10):
                x = x @ a  # still running when run() is called
            y = on_cuda.run({"x": x, "mask": mask})["y"]
            total = y.clone()
            del y  # its memory is free while torch may still read it
        on_cuda.run({"x": torch.zeros_like(a), "mask": mask})
        torch.cuda.synchronize()
        assert torch.equal(total, x)


@pytest.mark.gpu
def test_a_tensor_on_a_device_is_refused_by_a_session_on_the_cpu() -> None:
    with pytest.raises(InputError, match="'x' is on cuda:0, the session runs on cpu; move the tensor there"):
        Session(identity("float"), device="cpu").run({"x": torch.ones(1, 1, device="cuda")})


@pytest.mark.gpu
def test_an_unknown_option_of_cuda_is_an_error() -> None:
    with pytest.raises(Exception, match="sdpa_kernl"):
        Session(identity("float"), device="cuda", cuda_options={"sdpa_kernl": 1})


def test_the_same_path_without_a_session_of_ours() -> None:
    bare = load(identity("float"), session_options(1, "all", None, None, False), ["CPUExecutionProvider"])
    x = torch.ones(2, 2)
    assert torch.equal(run_bound(bare, {"x": x}, ["y"])["y"], x)
