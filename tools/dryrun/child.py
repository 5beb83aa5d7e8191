"""What runs in the child process: a session of ONNX Runtime on the null device.

Started as ``python -m maskport.tools.dryrun.child TASK`` with the stand-in libraries on the loader's path. It reads
``request.json`` and ``inputs.npz`` of its folder, and writes ``result.json`` there.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CUDA = "CUDAExecutionProvider"
NOT_LOADED = "ONNX Runtime's CUDA provider doesn't load with the stand-in libraries"
ADDR_NO_RANDOMIZE = 0x0040000
PERSONALITY_AS_IT_IS = 0xFFFFFFFF
BFLOAT16 = "tensor(bfloat16)"
WARM_UPS = 2
# ONNX Runtime captures the run that follows its own two.
GRAPH_RUNS = 4


def fix_addresses() -> bool:
    """Turn address randomisation off and start again; say whether it is off."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = libc.personality(ctypes.c_ulong(PERSONALITY_AS_IT_IS))
    if before & ADDR_NO_RANDOMIZE:
        return True
    # A container may allow no personality but the plain one.
    if before >= 0 and libc.personality(ctypes.c_ulong(before | ADDR_NO_RANDOMIZE)) >= 0:
        os.execv(sys.executable, sys.orig_argv)
    return False


class NullDevice:
    """The device's own functions, in the core of the stand-in libraries."""

    def __init__(self) -> None:
        self._core = ctypes.CDLL("libmaskport_null.so", mode=ctypes.RTLD_GLOBAL)
        # Before anything can load libraries of the same names from elsewhere.
        for library in Path(os.environ["MASKPORT_NULL_LIBRARIES"]).glob("lib*.so.*"):
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self._core.maskport_memory.restype = ctypes.c_size_t
        self._alive: list[bytes] = []
        if not self._core.maskport_memory():
            raise MemoryError("the null device's address space can't be reserved; is there a limit (ulimit -v)?")

    def mark(self, name: str) -> None:
        """Write a line into the log."""
        self._core.maskport_mark(name.encode())

    def answer(self, index: int, data: bytes) -> None:
        """Answer a copy to the host, counted from the last mark, with these bytes."""
        self._alive.append(data)
        self._core.maskport_answer(ctypes.c_longlong(index), data, ctypes.c_size_t(len(data)))

    def repeat_answers(self, copies: int) -> None:
        """Answer after so many copies as from the start: ONNX Runtime runs a model several times for one graph."""
        self._core.maskport_period(ctypes.c_longlong(copies))


def _session(request: dict[str, Any], **extra: str) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_profiling = True
    options.profile_file_prefix = "profile"
    if request["optimized"]:
        options.optimized_model_filepath = request["optimized"]
        # A file of weights of its own: one of over 2 GB couldn't be written.
        entry = "session.optimized_model_external_initializers_file_name"
        options.add_session_config_entry(entry, "optimized.data")
    for key, value in request["config"].items():
        options.add_session_config_entry(key, value)
    providers: list[Any] = [(CUDA, {**request["cuda_options"], **extra}), "CPUExecutionProvider"]
    # The Python class repeats a failed CUDA run on the CPU unless it is told not to.
    model: str | bytes = request["model"]
    if request["data"]:
        # A model whose nodes were named lies apart from its data.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", request["data"])
        model = Path(request["model"]).read_bytes()
    session = ort.InferenceSession(model, options, providers=providers, enable_fallback=0)
    session.disable_fallback()
    if session.get_providers()[0] != CUDA:
        raise RuntimeError(NOT_LOADED)
    return session


def _inputs(request: dict[str, Any], session: Any, on_device: bool) -> dict[str, Any]:
    """Return the inputs by name, in the host's memory or where the model reads them."""
    import numpy as np
    import onnxruntime as ort

    arrays = dict(np.load("inputs.npz"))
    types = {value.name: value.type for value in session.get_inputs()}
    # What a kernel reads on the host, such as a total length, stays there. Older releases don't tell.
    infos = session.get_input_memory_infos() if hasattr(session, "get_input_memory_infos") else []
    on_host = {value.name for value, info in zip(session.get_inputs(), infos, strict=False) if info.name == "Cpu"}
    values = {}
    for name, array in arrays.items():
        if types.get(name) == BFLOAT16:
            values[name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, 16)
        else:
            device = "cuda" if on_device and name not in on_host else "cpu"
            values[name] = ort.OrtValue.ortvalue_from_numpy(array, device, 0)
    return values


def _profile(session: Any) -> dict[str, Any]:
    return {"profile_start_ns": session.get_profiling_start_time_ns(), "profile": session.end_profiling()}


def trace(request: dict[str, Any], device: NullDevice) -> dict[str, Any]:
    """Run a model a few times from the host; the last run is the steady one."""
    device.mark("load")
    session = _session(request)
    values = _inputs(request, session, on_device=False)
    result: dict[str, Any] = {"error": None}
    try:
        for _ in range(WARM_UPS):
            device.mark("warm-up")
            session.run_with_ort_values(None, values)
        device.mark("steady")
        session.run_with_ort_values(None, values)
    except Exception as error:
        result["error"] = str(error)
    device.mark("end")
    return {**result, **_profile(session)}


def graph(request: dict[str, Any], device: NullDevice) -> dict[str, Any]:
    """Run a model from and to device memory, letting ONNX Runtime capture it as a CUDA graph."""
    import onnxruntime as ort

    device.mark("load")
    session = _session(request, enable_cuda_graph="1")
    binding = session.io_binding()
    values = _inputs(request, session, on_device=True)
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    outputs = [value.name for value in session.get_outputs()]
    for name in outputs:
        binding.bind_output(name, "cuda", 0)
    # A run that is not captured tells the shapes of the outputs, whose memory must stay in one place from then on.
    skip = ort.RunOptions()
    skip.add_run_config_entry("gpu_graph_id", "-1")
    session.run_with_iobinding(binding, skip)
    for name, value in zip(outputs, binding.get_outputs(), strict=True):
        binding.bind_ortvalue_output(name, value)
    result: dict[str, Any] = {"error": None}
    try:
        for _ in range(GRAPH_RUNS):
            device.mark("graph")
            session.run_with_iobinding(binding)
    except Exception as error:
        result["error"] = str(error)
    device.mark("end")
    return {**result, **_profile(session)}


def call(request: dict[str, Any], device: NullDevice) -> dict[str, Any]:
    """Call a function of a file with the request's arguments."""
    import importlib.util
    import traceback

    spec = importlib.util.spec_from_file_location("called", request["file"])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        device.mark("call")
        value = getattr(module, request["function"])(*request["arguments"])
        device.mark("end")
    except BaseException:
        return {"error": traceback.format_exc()}
    return {"error": None, "value": value}


TASKS: dict[str, Callable[[dict[str, Any], NullDevice], dict[str, Any]]] = {
    "trace": trace,
    "graph": graph,
    "call": call,
}


def main(task: str, fixed: bool) -> None:
    """Do a task and write what came of it, and whether addresses are fixed."""
    request = json.loads(Path("request.json").read_text())
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    memory = request["memory"] if most == resource.RLIM_INFINITY else min(request["memory"], most)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        device = NullDevice()
        for index, data in enumerate(request.get("answers", ())):
            if data is not None:
                device.answer(index, bytes.fromhex(data))
        if task == "graph":
            device.repeat_answers(len(request["answers"]))
        result = TASKS[task](request, device)
    except Exception as error:
        result = {"error": str(error) or type(error).__name__}
    Path("result.json").write_text(json.dumps({**result, "fixed": fixed}))
    # Without the libraries' own goodbyes, which may call what is no longer there.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], fix_addresses())
