"""The child process: its environment, its limits, and how it may end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..child.process import ended
from ..errors import ToolError
from .gpus import gpu
from .libraries import stand_ins

# How cuDNN answers: the version it states, and whether it refuses graphs. ONNX Runtime takes cuDNN's attention from 9.3
# on, but for that of 9.10.0 and 9.10.1.
CUDNN = {"accept": (91800, 0), "refuse": (91800, 1), "old": (90200, 0), "absent": (0, 0)}
LOG = "device.log"
# Variables that the child sees, by how their names begin.
KEPT = ("ORT_", "PYTHON")


def environment(sm: int, cudnn: str) -> dict[str, str]:
    """Return the environment in which a process finds the null device, which writes to LOG in its folder.

    Parameters
    ----------
    sm
        Compute capability, times ten.
    cudnn
        ``"accept"``, ``"refuse"`` (its graphs fail), ``"old"`` (before 9.3) or ``"absent"``.

    Raises
    ------
    ToolError
        If one of them is unknown, or the stand-in libraries can't be built here.
    """
    facts = {"major": sm // 10, "minor": sm % 10, **vars(gpu(sm))}
    if cudnn not in CUDNN:
        raise ToolError(f"cudnn is {cudnn!r}; use {', '.join(CUDNN)}")
    facts["cudnn_version"], facts["cudnn_refuses"] = CUDNN[cudnn]
    del facts["name"]
    folder = stand_ins()
    paths = [str(folder), *([str(folder / "cudnn")] if cudnn != "absent" else [])]
    # Nothing else of the environment: where memory lies depends on its size, and some of ONNX Runtime's orders on that.
    kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
    if "PYTHONPATH" in kept:
        # The child has a folder of its own.
        kept["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, kept["PYTHONPATH"].split(os.pathsep)))
    return {
        **kept,
        "LD_LIBRARY_PATH": os.pathsep.join([*paths, os.environ.get("LD_LIBRARY_PATH", "")]).rstrip(os.pathsep),
        "MASKPORT_NULL_DEVICE": ",".join(f"{name}={value}" for name, value in facts.items()),
        "MASKPORT_NULL_LOG": LOG,
        "MASKPORT_NULL_LIBRARIES": str(folder),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
    }


def run_child(
    task: str, request: Mapping[str, Any], folder: Path, *, sm: int, cudnn: str, seconds: float
) -> dict[str, Any]:
    """Run a task of :mod:`.child` in a folder and return its result.

    Raises
    ------
    ToolError
        If it takes longer than `seconds`, or ends in another way than by its own will.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "request.json").write_text(json.dumps(request))
    # By relative paths: the length of a temporary folder's name would move memory as well.
    command = [sys.executable, "-P", "-m", f"{__package__}.child", task]
    said = folder / "said.txt"
    with said.open("wb") as file:
        process = subprocess.Popen(
            command,
            env=environment(sm, cudnn),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                what = f"the dry run took longer than {seconds:g} s; give it more time, or a smaller input"
                raise ToolError(what) from error
            raise
    text = said.read_text(errors="replace").strip()
    if code or not (folder / "result.json").exists():
        last = text.splitlines()[-1] if text else "it said nothing"
        raise ToolError(f"the dry run's process ended by {ended(code)}: {last}")
    return {**json.loads((folder / "result.json").read_text()), "said": text}
