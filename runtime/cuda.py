"""Why CUDA can't be used on this machine, in plain words and with the command that helps."""

from __future__ import annotations

import contextlib
import ctypes
import io
import re
import sys
from pathlib import Path

import onnxruntime as ort

from .packages import package_conflict

# In the order of ONNX Runtime's own loader: the CUDA provider finds its host in the first. cuDNN is loaded by the
# provider only when a kernel asks for it; without it, contrib Attention and MultiHeadAttention fail at their first run.
PROVIDER_LIBRARIES = ("libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so")
CUDNN = "libcudnn.so.9"
DRIVER = "libcuda.so.1"

INSTALL = "pip install 'maskport[cuda]' brings the CUDA and cuDNN libraries"

# What the loader says -> what is wrong and what to do. The first pattern that is found counts.
LOADER_FAULTS = (
    (
        r"(libcuda\.so\S*): cannot open shared object",
        "{0} is missing: this machine has no NVIDIA driver; install the driver (nvidia-smi shows whether it works), "
        "or start the container with --gpus all",
    ),
    (
        r"(libcudnn\S*): cannot open shared object",
        "{0} is missing: cuDNN isn't installed; " + INSTALL,
    ),
    (
        r"(lib(?:cu|nv)\S*): cannot open shared object",
        "{0} is missing; " + INSTALL,
    ),
    (
        r"(libonnxruntime\S*): cannot open shared object",
        "{0} is missing: the onnxruntime-gpu package is damaged; pip install --force-reinstall onnxruntime-gpu",
    ),
    (
        r"(lib\S+): cannot open shared object",
        "{0} is missing: it is a library of the system; install it with the system's package manager",
    ),
    (
        r"version `((?:GLIBC|GLIBCXX|CXXABI)_\S+)' not found",
        "this system's C or C++ library is older than {0}; use a newer system or an older onnxruntime-gpu",
    ),
    (
        r"(lib(?:cu|nv)[^:/\s]*):.*(?:undefined symbol|version `\S+' not found)",
        "{0} is of another version than ONNX Runtime was built with; " + INSTALL,
    ),
    (
        r"([^:/\s]+): (?:file too short|invalid ELF header|wrong ELF class)",
        "{0} is damaged or made for another kind of machine; pip install --force-reinstall 'maskport[cuda]'",
    ),
)

# Codes of the CUDA driver (CUresult, cuda.h) when it starts.
DRIVER_FAULTS = {
    34: "libcuda.so.1 is the stub of the CUDA toolkit, no driver; take the stubs folder out of LD_LIBRARY_PATH",
    100: "the NVIDIA driver finds no device; see nvidia-smi and CUDA_VISIBLE_DEVICES",
    101: "CUDA_VISIBLE_DEVICES names a device that isn't there; see nvidia-smi",
    802: "the NVIDIA driver isn't ready; on NVSwitch systems start nvidia-fabricmanager",
    803: "the NVIDIA driver's library and its kernel module differ in version; reboot, or reinstall the driver",
    804: "the CUDA compatibility libraries don't support this device or driver; update the NVIDIA driver",
}


def cuda_problem(index: int = 0) -> str | None:
    """Say why ONNX Runtime can't use CUDA device `index`, and what to do; None if nothing stands in its way.

    ONNX Runtime itself only logs the reason and goes on with the CPU.
    """
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return package_conflict() or (
            "the installed onnxruntime package has no CUDA; "
            "pip uninstall -y onnxruntime && pip install 'maskport[cuda]'"
        )
    if not sys.platform.startswith("linux"):
        return None  # Session asks ONNX Runtime afterwards which provider it started.
    # Loads the libraries that the nvidia-* packages or torch brought; it prints what it misses.
    with contextlib.redirect_stdout(io.StringIO()):
        ort.preload_dlls()
    folder = Path(ort.__file__).parent / "capi"
    try:
        # The driver first: without it there is no use in installing the libraries.
        driver = ctypes.CDLL(DRIVER)
        for name in PROVIDER_LIBRARIES:
            ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(CUDNN)
    except OSError as error:
        return loader_fault(str(error))
    return _driver_problem(driver, index)


def loader_fault(text: str) -> str:
    """Return what a message of the dynamic loader means, and what to do."""
    for pattern, meaning in LOADER_FAULTS:
        if found := re.search(pattern, text):
            return meaning.format(*found.groups())
    return f"ONNX Runtime's CUDA provider doesn't load: {text}"


def _driver_problem(driver: ctypes.CDLL, index: int) -> str | None:
    version, count = ctypes.c_int(), ctypes.c_int()
    # This order: the version can be asked of a driver that is too old to start.
    driver.cuDriverGetVersion(ctypes.byref(version))
    built = int(ort.cuda_version.partition(".")[0])
    if version.value // 1000 < built:
        return (
            f"the NVIDIA driver is too old: it supports CUDA {version.value // 1000}.{version.value % 1000 // 10}, "
            f"ONNX Runtime {ort.__version__} needs {built}.0 or later; update the driver"
        )
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return DRIVER_FAULTS.get(code, f"the NVIDIA driver doesn't start (CUDA error {code}); see nvidia-smi")
    if not count.value:
        return DRIVER_FAULTS[100]
    if index >= count.value:
        return f"this machine has {count.value} CUDA device(s), cuda:0 to cuda:{count.value - 1}"
    return None
