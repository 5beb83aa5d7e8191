"""The child's side: one session of ONNX Runtime, and one answer to each request.

Started as ``python -m maskport.tools.child.serve``. It imports numpy and ONNX Runtime alone, to be ready soon.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from . import wire

CPU = "CPUExecutionProvider"
BFLOAT16, BFLOAT16_CODE = "tensor(bfloat16)", 16
# How often it looks whether its parent is still there, in seconds.
LOOK = 1.0
# Of the memory that is free when it starts: what is left keeps the machine alive.
SHARE = 0.9
# Outputs that are looked at before they are handed over, in bytes.
LARGE = 1 << 28


def main() -> None:
    """Answer requests until standard input ends; the first says what to load."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    # What a library prints is no answer.
    os.dup2(2, 1)
    session: ort.InferenceSession | None = None
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            said, value = wire.receive(requests)
            try:
                if session is None:
                    session = _loaded(said, value)
                    answer: tuple[Any, Any] = (_described(session), None)
                else:
                    answer = None, _run(session, said, value)
                    _leave_room(answer[1])
            except Exception as error:
                answer = {"error": type(error).__name__, "text": str(error)}, None
            wire.send(answers, *answer)
    # Without the libraries' own goodbyes.
    os._exit(0)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


def _loaded(said: dict[str, Any], model: np.ndarray | None) -> ort.InferenceSession:
    providers = [name if isinstance(name, str) else (name[0], name[1]) for name in said["providers"]]
    if providers == [CPU]:
        _limit_memory()
    else:
        # It loads the device's libraries, in the order in which ONNX Runtime finds them.
        from ...runtime.cuda import cuda_problem

        cuda_problem()
    options = ort.SessionOptions()
    for name, number in said["options"].items():
        setattr(options, name, type(getattr(options, name))(number))
    for key, text in said["config"].items():
        options.add_session_config_entry(key, text)
    source = said["path"] if model is None else model.tobytes()
    # The Python class repeats a failed CUDA run on the CPU unless it is told not to.
    session = ort.InferenceSession(source, options, providers=providers, enable_fallback=0)
    session.disable_fallback()
    return session


def _limit_memory() -> None:
    """Let an allocation fail before the machine runs out of memory, where the system tells how much there is."""
    with contextlib.suppress(ImportError, OSError, StopIteration, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = int(_free() * SHARE) if most == resource.RLIM_INFINITY else min(int(_free() * SHARE), most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
        # Should it run out all the same, this is the process to end.
        Path("/proc/self/oom_score_adj").write_text("1000")


def _free() -> int:
    """Return how much memory is free, in bytes; OSError or StopIteration where the system doesn't tell."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def _leave_room(outputs: list[Any]) -> None:
    """Refuse outputs of which the parent, too, could not hold a copy."""
    size = sum(array.nbytes for array in outputs if isinstance(array, np.ndarray))
    with contextlib.suppress(OSError, StopIteration):
        if size > LARGE and size > _free() * SHARE:
            raise MemoryError(f"its outputs are {size / 2**30:.1f} GiB, more memory than is free")


def _described(session: ort.InferenceSession) -> dict[str, Any]:
    return {
        "inputs": [[node.name, node.type, node.shape] for node in session.get_inputs()],
        "outputs": [[node.name, node.type, node.shape] for node in session.get_outputs()],
        "metadata": session.get_modelmeta().custom_metadata_map,
        "providers": session.get_providers(),
    }


def _run(session: ort.InferenceSession, names: list[str], feeds: Mapping[str, Any]) -> list[Any]:
    if all(node.type != BFLOAT16 for node in (*session.get_inputs(), *session.get_outputs())):
        return list(session.run(names, feeds))
    # numpy has no such type, so ONNX Runtime's own values carry it.
    values = {
        name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), BFLOAT16_CODE)
        if array.dtype.name == "bfloat16"
        else ort.OrtValue.ortvalue_from_numpy(array)
        for name, array in feeds.items()
    }
    return [_array(value) for value in session.run_with_ort_values(names, values)]


def _array(value: ort.OrtValue) -> np.ndarray:
    if value.data_type() != BFLOAT16:
        return np.asarray(value.numpy())
    import ml_dtypes

    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(data, ml_dtypes.bfloat16).reshape(value.shape())


if __name__ == "__main__":
    main()
