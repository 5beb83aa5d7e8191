"""The exported model run on the CPU: by ONNX Runtime, or by the reference where ONNX Runtime lacks an element type."""

from __future__ import annotations

import functools
import tempfile
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from ..errors import ExportError, first_line
from ..files import bytes_of

if TYPE_CHECKING:
    import onnxruntime as ort

Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
# Makes a session, with the arguments of ONNX Runtime's own.
Start = Callable[..., "ort.InferenceSession"]

FATAL_ONLY = 4
# More is quicker through a file.
MAX_COPIED_BYTES = 1 << 26
CPU = ["CPUExecutionProvider"]


class BackendError(Exception):
    """The model failed while it ran; the message is the first line of the backend's."""


@dataclass(frozen=True)
class Backend:
    """A model that is ready to run, and what runs it."""

    how: str
    run: Run

    @property
    def is_onnxruntime(self) -> bool:
        """Whether ONNX Runtime runs it, as it will for the user."""
        return self.how.startswith("onnxruntime")


def load(model: ir.Model, *, every_value: bool = False, optimized: bool = True, start: Start | None = None) -> Backend:
    """Load a model on the CPU.

    Parameters
    ----------
    model
        Left as it is.
    every_value
        Whether to give what every node of the main graph computes, instead of the outputs.
    optimized
        Whether ONNX Runtime may rewrite the graph, so that its messages don't name the model's own nodes.
    start
        As of :func:`session_of`.

    Raises
    ------
    ExportError
        If nothing can load it.
    """
    try:
        import onnxruntime as ort
    except ModuleNotFoundError as error:
        raise ExportError(
            "export runs the file before it returns, and ONNX Runtime isn't installed; pip install 'maskport[cpu]', "
            "or export with check=False"
        ) from error
    names = [str(value.name) for value in model.graph.outputs]
    if every_value:
        names = [str(value.name) for node in model.graph for value in node.outputs if value.name]
    options = ort.SessionOptions()
    options.log_severity_level = FATAL_ONLY
    if not optimized or every_value:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = session_of(model, options, names if every_value else (), start)
    except Exception as error:
        if _has_bfloat16(model):
            return Backend("onnx.reference", _reference(model, names))
        raise ExportError(f"ONNX Runtime can't load the exported file: {first_line(error)}") from error

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        try:
            return dict(zip(names, session.run(names, dict(inputs)), strict=True))
        except Exception as error:
            raise BackendError(first_line(error)) from error

    return Backend(f"onnxruntime {ort.__version__} on the CPU", run)


def session_of(
    model: ir.Model, options: ort.SessionOptions, outputs: Collection[str] = (), start: Start | None = None
) -> ort.InferenceSession:
    """Return a session on the CPU, of a model that is left as it is.

    Parameters
    ----------
    model
        Large weights go through a folder that is removed again: ONNX Runtime maps them, where it copies bytes twice.
    options
        Of the session.
    outputs
        Values of the main graph that are given instead of its outputs; none leaves those.
    start
        Makes the session, perhaps in another process or on another device. It may load the model anew, so the folder
        stays as long as what it returns.
    """
    import onnxruntime as ort

    if bytes_of(model) < MAX_COPIED_BYTES:
        proto = ir.to_proto(model)
        _set_outputs(proto, outputs)
        return (start or ort.InferenceSession)(proto.SerializeToString(), options, providers=CPU)
    folder = tempfile.TemporaryDirectory(prefix="maskport-")
    try:
        file = Path(folder.name) / "model.onnx"
        ir.save(model, file, external_data=f"{file.name}.data")
        if outputs:
            proto = onnx.load(file, load_external_data=False)
            _set_outputs(proto, outputs)
            file.write_bytes(proto.SerializeToString())
        session = (start or ort.InferenceSession)(str(file), options, providers=CPU)
    except BaseException:
        folder.cleanup()
        raise
    if start is None:
        folder.cleanup()
    else:
        weakref.finalize(session, folder.cleanup)
    return session


def _set_outputs(proto: onnx.ModelProto, names: Collection[str]) -> None:
    if names:
        del proto.graph.output[:]
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)


def _reference(model: ir.Model, names: list[str]) -> Run:
    from ..twins import evaluator

    # When it is run, for an operator that it lacks is a failure to run.
    prepared = functools.cache(lambda: evaluator(ir.to_proto(model)))

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        try:
            return dict(zip(names, prepared().run(names, dict(inputs)), strict=True))
        except Exception as error:
            raise BackendError(first_line(error)) from error

    return run


def _has_bfloat16(model: ir.Model) -> bool:
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    return any(value.dtype == ir.DataType.BFLOAT16 for value in values)
