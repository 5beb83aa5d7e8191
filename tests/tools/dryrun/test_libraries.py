"""The stand-in libraries: what is missing is one line, and what they don't know is told and not a crash."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path, PurePosixPath

import pytest
from maskport.tools.dryrun import libraries
from maskport.tools.dryrun.call import Called
from maskport.tools.errors import ToolError


@pytest.fixture
def anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and libraries that are looked for again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    libraries.stand_ins.cache_clear()
    yield tmp_path
    libraries.stand_ins.cache_clear()


def test_they_are_built_once(anew: Path) -> None:
    folder = libraries.stand_ins()
    assert folder.is_relative_to(anew)
    made = {path: path.stat().st_mtime_ns for path in folder.rglob("*.so*")}
    assert {path.name.partition(".so")[0] for path in made} == {
        *(name for name in libraries.STAND_INS if name not in ("libcufft", "libnvrtc")),
        "libmaskport_null",
    }
    libraries.stand_ins.cache_clear()
    assert libraries.stand_ins() == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.so*")} == made
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_no_compiler(anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ToolError, match=r"needs a C\+\+ compiler and finds no g\+\+ or clang\+\+"):
        libraries.stand_ins()


def test_a_compiler_that_fails(anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(ToolError, match=r"^false failed while the stand-in libraries were built: it said nothing$"):
        libraries.stand_ins()


def test_no_headers(anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(libraries, "version", missing)
    with pytest.raises(ToolError, match="needs NVIDIA's headers: pip install nvidia-cuda-runtime"):
        libraries.stand_ins()


def test_headers_of_another_cuda(anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Header(PurePosixPath):
        def locate(self) -> Path:
            return anew / self.name

    (anew / "cuda_runtime_api.h").write_text("#define CUDART_VERSION  11080\n")
    monkeypatch.setattr(libraries, "version", lambda name: "11.8")
    monkeypatch.setattr(libraries, "files", lambda name: [Header("cuda_runtime_api.h")])
    with pytest.raises(
        ToolError, match=r"are of CUDA 11 and 11, ONNX Runtime is built for CUDA \d+; pip install nvidia"
    ):
        libraries.stand_ins()


def test_another_machine(anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(ToolError, match="needs Linux on x86-64; this is Linux on aarch64"):
        libraries.stand_ins()


def test_onnx_runtime_without_cuda(anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "PROVIDER", "no_such_provider.so")
    with pytest.raises(ToolError, match="the installed onnxruntime has no CUDA provider; pip uninstall"):
        libraries.stand_ins()


def test_a_cache_that_can_not_be_written(anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (anew / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(anew / "file"))
    with pytest.raises(ToolError, match=r"can't be kept in .*: Not a directory; set XDG_CACHE_HOME"):
        libraries.stand_ins()


def call_what_is_unknown() -> list[int]:
    import ctypes

    import onnxruntime

    value = ctypes.c_int(1)
    dnn = ctypes.CDLL("libcudnn.so.9")
    runtime = ctypes.CDLL(f"libcudart.so.{onnxruntime.cuda_version.partition('.')[0]}")
    codes = [dnn.cudnnConvolutionForward(), runtime.cudaDeviceGetAttribute(ctypes.byref(value), 9999, 0)]
    return [*codes, value.value]


def test_unknown_calls_are_refused_and_counted(null_device: Callable[..., Called]) -> None:
    called = null_device(call_what_is_unknown)
    assert called.value == [3000, 0, 0]
    assert called.count("unknown", "cudnnConvolutionForward") == 1
    assert called.count("unknown", "cudaDeviceGetAttribute 9999") == 1
