"""The dry run of a model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...runtime.messages import plain
from ..errors import ToolError
from .capture import capture_of
from .child import NOT_LOADED
from .device_log import read_log
from .gpus import gpu
from .model import declared, fill, read_model
from .names import name_nodes, named_nodes
from .process import LOG, run_child
from .profile import read_profile
from .reading import Steady, attention, doubts, steady_run, unknown_values
from .sites import sites_of
from .trace import Action, GraphCapture, Trace
from .values import Values

if TYPE_CHECKING:
    import onnx

GIB = 1 << 30
LONGEST_MESSAGE = 300
# How often a value may decide on the next.
MOST_ROUNDS = 12


def dryrun(
    model: str | os.PathLike[str] | bytes,
    sm: int = 90,
    inputs: Mapping[str, Any] | None = None,
    *,
    cudnn: str = "accept",
    cuda_options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    graph: bool = True,
    seconds: float = 120,
    memory: int = 4 * GIB,
) -> Trace:
    """Run a model on a CUDA device that isn't there, and report what ONNX Runtime would make a real one do.

    The host code is the CUDA provider's own; kernels are logged and not run, so that no output has a meaning and none
    is returned. What decides on kernels is real: shapes, types, options, the device's properties.

    Parameters
    ----------
    model
        Path of an ONNX file, or its bytes.
    sm
        Compute capability of the device, times ten: 75, 80, 86, 89, 90 or 120.
    inputs
        By name, arrays or shapes of what is drawn; free axes that none names get small sizes. bfloat16 is given as
        uint16, its bits.
    cudnn
        ``"accept"``: a recent cuDNN that takes every graph; ``"refuse"``: one that takes none; ``"old"``: one before
        9.3, which ONNX Runtime doesn't use for attention; ``"absent"``: none.
    cuda_options
        Options of ONNX Runtime's CUDA provider, such as ``{"sdpa_kernel": 2}``.
    config
        Configuration entries of the session.
    graph
        Whether to try to capture a CUDA graph as well.
    seconds
        Time that the child process may take.
    memory
        Bytes that it may take for itself; memory of the device isn't counted.

    Returns
    -------
    Trace
        The run after two for warm-up, the same each time.

    Raises
    ------
    ToolError
        If ONNX Runtime refuses the model, with its message; if this machine can't have the stand-ins; or if the child
        takes too long or ends in a crash.

    Examples
    --------
    >>> trace = dryrun("model.onnx", sm=90, inputs={"x": (4, 256, 768)})  # doctest: +SKIP
    >>> [site.kernel for site in trace.attention]  # doctest: +SKIP
    ['flash', 'flash']
    """
    with tempfile.TemporaryDirectory(prefix="maskport-dryrun-") as name:
        folder = Path(name)
        if isinstance(model, bytes):
            path = folder / "model.onnx"
            path.write_bytes(model)
        else:
            path = Path(model).absolute()
        proto = read_model(path)
        arrays = fill(declared(proto), inputs or {})
        request: dict[str, Any] = {
            "model": str(path) if not isinstance(model, bytes) else f"../{path.name}",
            "data": None,
            "optimized": None,
            "cuda_options": _texts(cuda_options),
            "config": _texts(config),
            "memory": memory,
            "answers": [],
        }
        renamed = name_nodes(proto)
        if renamed:
            named = folder / "named.onnx"
            named.write_bytes(proto.SerializeToString())
            request |= {"model": f"../{named.name}", "data": str(path.parent) if not isinstance(model, bytes) else ".."}
        child = Child(folder, request, arrays, {"sm": sm, "cudnn": cudnn, "seconds": seconds})
        steady, doubted = _traced(child, proto, path.parent)
        captured = _captured(child, steady) if graph else GraphCapture(None, None)
        return Trace(
            model="bytes" if isinstance(model, bytes) else Path(model).name,
            sm=sm,
            gpu=gpu(sm).name,
            cudnn=cudnn,
            onnxruntime=_version(),
            inputs={name: array.shape for name, array in arrays.items()},
            actions=steady.actions,
            nodes=steady.nodes,
            attention=attention(steady, sites_of(proto, path, renamed), named_nodes(proto), sm),
            memory=steady.memory,
            cuda_graph=captured,
            not_faithful=doubted,
        )


class Child(NamedTuple):
    """What each run of the child process is given."""

    folder: Path
    request: dict[str, Any]
    arrays: dict[str, np.ndarray]
    device: dict[str, Any]

    def run(self, task: str, **more: Any) -> tuple[dict[str, Any], Path]:
        """Run a task; returns its result and its folder."""
        folder = Path(tempfile.mkdtemp(prefix=f"{task}-", dir=self.folder))
        with (folder / "inputs.npz").open("wb") as file:
            np.savez(file, **self.arrays)  # type: ignore[arg-type]
        self.request.update(more)
        return run_child(task, self.request, folder, **self.device), folder


def _texts(options: Mapping[str, Any] | None) -> dict[str, str]:
    texts = {}
    for key, value in (options or {}).items():
        texts[str(key)] = str(int(value)) if isinstance(value, bool) else str(value)
    return texts


def _version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


def _traced(child: Child, proto: onnx.ModelProto, data: Path) -> tuple[Steady, tuple[str, ...]]:
    """Trace until no copy to the host brings something new: what one brings may decide on the next."""
    values: Values | None = None
    optimized = child.folder / "optimized.onnx"
    for _ in range(MOST_ROUNDS):
        result, folder = child.run("trace")
        lines = read_log(folder / LOG)
        runs = read_profile(folder / result["profile"], result["profile_start_ns"]) if "profile" in result else []
        steady = steady_run(lines, runs, "steady" if result["error"] is None else "warm-up")
        wanted = [action for action in steady.actions if action.answered is not None]
        if wanted and not optimized.exists():
            child.run("trace", optimized=f"../{optimized.name}")
            child.request["optimized"] = None
        if wanted and values is None and optimized.exists():
            values = Values(proto, data, optimized, child.arrays)
        found = [data and data.hex() for data in values.read_backs(steady.actions)] if values else []
        if found == child.request["answers"]:
            break
        child.request["answers"] = found
    else:
        raise ToolError(f"what the host reads back from the device didn't settle in {MOST_ROUNDS} runs")
    if result["error"] is not None:
        raise ToolError(f"ONNX Runtime refuses to run the model on CUDA: {_said(result)}{_unknown(wanted)}")
    return steady, (*doubts(lines, result["fixed"]), *unknown_values(wanted))


def _captured(child: Child, steady: Steady) -> GraphCapture:
    result, folder = child.run("graph")
    runs = read_profile(folder / result["profile"], result["profile_start_ns"]) if "profile" in result else []
    error = None if result["error"] is None else _said(result)
    return capture_of(read_log(folder / LOG), runs, error, steady.nodes)


def _unknown(wanted: Sequence[Action]) -> str:
    lines = unknown_values(wanted)
    return f" ({'; '.join(lines)})" if lines else ""


def _said(result: dict[str, Any]) -> str:
    # Where it happened says nothing to the user, and is this machine's.
    text = " ".join(plain(RuntimeError(result["error"])).partition(" ; GPU=")[0].split())
    if text == NOT_LOADED and result["said"]:
        text = f"{text}: {result['said'].splitlines()[-1]}"
    # A refused cuDNN graph is told whole.
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}..."
