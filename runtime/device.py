"""From a device's name to execution providers, and in plain words why CUDA can't be used."""

from __future__ import annotations

import contextlib
import ctypes
import io
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import onnxruntime as ort

from .errors import DeviceUnavailable, InputError

Provider = str | tuple[str, dict[str, str]]

CPU: Provider = "CPUExecutionProvider"
PACKAGES = ("onnxruntime", "onnxruntime-gpu")


def installed_packages() -> dict[str, str]:
    """Return the installed ONNX Runtime distributions with their versions."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def package_conflict() -> str | None:
    """Say in one line what is wrong if both ONNX Runtime packages are installed, else None."""
    if len(installed_packages()) < 2:
        return None
    return (
        "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files; keep one: "
        "pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu (it also runs on CPUs)"
    )


def cuda_problem() -> str | None:
    """Say why ONNX Runtime can't use CUDA on this machine, and what to do; None if nothing stands in its way.

    ONNX Runtime itself only logs the reason and goes on with the CPU.
    """
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return package_conflict() or (
            "the installed onnxruntime package has no CUDA; "
            "pip uninstall -y onnxruntime && pip install 'maskport[cuda]'"
        )
    # Loads the libraries that the nvidia-* packages or torch brought; it prints what it misses.
    with contextlib.redirect_stdout(io.StringIO()):
        ort.preload_dlls()
    folder = Path(ort.__file__).parent / "capi"
    try:
        # The order of ONNX Runtime's own loader: the CUDA provider finds its host in the first library.
        ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / "libonnxruntime_providers_cuda.so"))
    except OSError as error:
        if "cannot open shared object file" not in str(error):
            return f"ONNX Runtime's CUDA provider doesn't load: {error}"
        library = str(error).partition(":")[0]
        if library.startswith("libcuda.so"):
            return f"{library} is missing: this machine has no NVIDIA driver"
        return f"{library} is missing; pip install 'maskport[cuda]' brings the CUDA and cuDNN libraries"
    return None


def providers(device: str) -> list[Provider]:
    """Return the execution providers of `device`, the wanted one first.

    Parameters
    ----------
    device
        ``"cpu"``, ``"cuda"``, ``"cuda:N"``, or ``"auto"``: CUDA where it can be used, else the CPU.

    Raises
    ------
    DeviceUnavailable
        If the device can't be used on this machine.
    InputError
        If `device` is none of these.
    """
    if device == "cpu":
        return [CPU]
    name, _, index = device.partition(":")
    if device not in ("auto", "cuda") and not (name == "cuda" and index.isdecimal()):
        raise InputError(f"device {device!r} is unknown; use 'auto', 'cpu', 'cuda' or 'cuda:N'")
    problem = cuda_problem()
    if problem is None:
        return [("CUDAExecutionProvider", {"device_id": index or "0"}), CPU]
    if device == "auto":
        return [CPU]
    raise DeviceUnavailable(f"device {device!r} can't be used: {problem}")
