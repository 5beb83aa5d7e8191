"""Devices: what is named is what runs, and what is missing is named with the command that brings it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx.parser
import onnxruntime as ort
import pytest
from maskport.runtime import DeviceUnavailable, InputError, Session, cuda, device, session
from maskport.runtime import packages as installed

BRINGS = "pip install 'maskport[cuda]' brings the CUDA and cuDNN libraries"
NO_FILE = "cannot open shared object file: No such file or directory"


@pytest.fixture(scope="module")
def model() -> bytes:
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[n] x) => (float[n] y) { y = Abs(x) }'
    return onnx.parser.parse_model(text).SerializeToString()


class Driver:
    """Stands for libcuda.so.1: the driver's three functions that are asked."""

    def __init__(self, version: int = 13000, init: int = 0, count: int = 1) -> None:
        self._version, self._init, self._count = version, init, count

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = self._version
        return 0

    def cuInit(self, flags: int) -> int:
        return self._init

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self._count
        return 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Simulate a machine: its driver, and what the loader says of libraries, by a part of their name."""

    def simulate(driver: Driver | None = None, **faults: str) -> None:
        def load(name: str, mode: int = 0) -> Any:
            for part, text in faults.items():
                if part in name:
                    raise OSError(text)
            return driver or Driver()

        monkeypatch.setattr(ctypes, "CDLL", load)
        monkeypatch.setattr(ort, "preload_dlls", lambda: None)
        monkeypatch.setattr(ort, "get_available_providers", lambda: [device.CUDA_PROVIDER, device.CPU_PROVIDER])
        monkeypatch.setattr(ort, "cuda_version", "13.0")

    return simulate


LOADER = [
    (
        {"libcuda.so": f"libcuda.so.1: {NO_FILE}"},
        "libcuda.so.1 is missing: this machine has no NVIDIA driver; install the driver",
    ),
    (
        {"providers_cuda": f"libcublasLt.so.13: {NO_FILE}"},
        f"libcublasLt.so.13 is missing; {BRINGS}",
    ),
    ({"providers_cuda": f"libcudart.so.13: {NO_FILE}"}, f"libcudart.so.13 is missing; {BRINGS}"),
    ({"providers_cuda": f"libcurand.so.10: {NO_FILE}"}, f"libcurand.so.10 is missing; {BRINGS}"),
    ({"providers_cuda": f"libnvrtc.so.13: {NO_FILE}"}, f"libnvrtc.so.13 is missing; {BRINGS}"),
    ({"cudnn": f"libcudnn.so.9: {NO_FILE}"}, f"libcudnn.so.9 is missing: cuDNN isn't installed; {BRINGS}"),
    (
        {"providers_shared": f"/v/capi/libonnxruntime_providers_shared.so: {NO_FILE}"},
        "libonnxruntime_providers_shared.so is missing: the onnxruntime-gpu package is damaged; pip install --force",
    ),
    ({"providers_cuda": f"libgomp.so.1: {NO_FILE}"}, "libgomp.so.1 is missing: it is a library of the system"),
    (
        {"providers_cuda": "/lib/libc.so.6: version `GLIBC_2.38' not found (required by /v/libcublas.so.13)"},
        "this system's C or C++ library is older than GLIBC_2.38; use a newer system",
    ),
    (
        {"providers_cuda": "/v/lib/libcublas.so.13: version `libcublas.so.13' not found (required by x.so)"},
        "libcublas.so.13 is of another version than ONNX Runtime was built with; pip install",
    ),
    (
        {"cudnn": "/v/lib/libcudnn_graph.so.9: undefined symbol: cublasLtGetVersion, version libcublasLt.so.13"},
        "libcudnn_graph.so.9 is of another version than ONNX Runtime was built with",
    ),
    (
        {"providers_cuda": "/v/capi/libonnxruntime_providers_cuda.so: file too short"},
        "libonnxruntime_providers_cuda.so is damaged or made for another kind of machine; pip install --force",
    ),
    ({"providers_cuda": "something new"}, "ONNX Runtime's CUDA provider doesn't load: something new"),
]
DRIVERS = [
    (Driver(version=12040), "the NVIDIA driver is too old: it supports CUDA 12.4, ONNX Runtime .* needs 13.0 or later"),
    (Driver(init=100), "the NVIDIA driver finds no device; see nvidia-smi and CUDA_VISIBLE_DEVICES"),
    (Driver(count=0), "the NVIDIA driver finds no device"),
    (Driver(init=101), "CUDA_VISIBLE_DEVICES names a device that isn't there"),
    (Driver(init=34), "libcuda.so.1 is the stub of the CUDA toolkit"),
    (Driver(init=802), "the NVIDIA driver isn't ready; on NVSwitch systems"),
    (Driver(init=803), "the NVIDIA driver's library and its kernel module differ in version; reboot"),
    (Driver(init=804), "the CUDA compatibility libraries don't support"),
    (Driver(init=999), r"the NVIDIA driver doesn't start \(CUDA error 999\)"),
]


@pytest.mark.parametrize(("faults", "message"), LOADER)
def test_a_missing_library_is_named(machine: Callable[..., None], faults: dict[str, str], message: str) -> None:
    machine(**faults)
    assert message in str(cuda.cuda_problem())


@pytest.mark.parametrize(("driver", "message"), DRIVERS)
def test_a_driver_that_cant_is_explained(
    machine: Callable[..., None], model: bytes, driver: Driver, message: str
) -> None:
    machine(driver)
    with pytest.raises(DeviceUnavailable, match=f"device 'cuda' can't be used: {message}"):
        Session(model, device="cuda")


def test_every_fault_of_the_tables_is_tested() -> None:
    texts = [text for faults, _ in LOADER for text in faults.values()]
    meanings = {cuda.loader_fault(text).split(";")[0] for text in texts}
    assert len(meanings) >= len(cuda.LOADER_FAULTS) + 1
    assert {driver._init for driver, _ in DRIVERS} >= set(cuda.DRIVER_FAULTS)


def test_a_machine_that_can_is_taken(machine: Callable[..., None]) -> None:
    machine(Driver(count=2))
    wanted = (device.CUDA_PROVIDER, {"sdpa_kernel": "2", "device_id": "1"})
    choice = device.choose("cuda:1", {"sdpa_kernel": 2})
    assert choice == ("cuda:1", device.CUDA_PROVIDER, [wanted, device.CPU_PROVIDER], "CUDA was asked for")
    assert device.choose("auto")[0::3] == ("cuda:0", "CUDA can be used")
    with pytest.raises(DeviceUnavailable, match=r"this machine has 2 CUDA device\(s\), cuda:0 to cuda:1"):
        device.choose("cuda:2")


def test_auto_takes_the_cpu_and_says_why(machine: Callable[..., None], model: bytes) -> None:
    machine(cudnn=f"libcudnn.so.9: {NO_FILE}")
    session = Session(model, cuda_options={"sdpa_kernel": 2})
    assert session.device == "cpu"
    assert session.why == f"CUDA can't be used: libcudnn.so.9 is missing: cuDNN isn't installed; {BRINGS}"


def test_cuda_that_onnx_runtime_didnt_start_is_no_cpu(model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = device.Choice("cuda:0", device.CUDA_PROVIDER, [device.CPU_PROVIDER], "")
    monkeypatch.setattr(session, "choose", lambda *_: choice)
    with pytest.raises(DeviceUnavailable, match="ONNX Runtime didn't start CUDAExecutionProvider; its log says why"):
        Session(model, device="cuda")


def test_a_package_without_cuda_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: [device.CPU_PROVIDER])
    monkeypatch.setattr(installed, "version", {"onnxruntime": "1"}.__getitem__)
    monkeypatch.setattr(installed, "PackageNotFoundError", KeyError)
    assert str(cuda.cuda_problem()) == (
        "the installed onnxruntime package has no CUDA; pip uninstall -y onnxruntime && pip install 'maskport[cuda]'"
    )
    monkeypatch.setattr(installed, "version", lambda name: "1")
    assert "are both installed and overwrite each other's files" in str(cuda.cuda_problem())


@pytest.mark.parametrize(
    "name", ["tpu", "cuda:", "cuda:x", "cuda:-1", "cuda:²", "cpu:0", "auto:1", "CUDA", "", 0, None]
)
def test_an_unknown_device_is_refused(model: bytes, name: Any) -> None:
    with pytest.raises(InputError, match="is unknown; use 'auto', 'cpu', 'cuda' or 'cuda:N'"):
        Session(model, device=name)


def test_this_machine_answers(model: bytes, tmp_path: Path) -> None:
    # A process of its own: nothing here has loaded libraries yet.
    (tmp_path / "m.onnx").write_bytes(model)
    code = """
import sys
from maskport.runtime import DeviceUnavailable, Session
try:
    print(Session(sys.argv[1], device="cuda").device)
except DeviceUnavailable as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "m.onnx"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(("cuda:0\n", "device 'cuda' can't be used: "))
    assert done.stdout.count("\n") == 1
