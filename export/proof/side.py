"""A model that is ready to run on the CPU: by ONNX Runtime, or by the executable twins of what the CPU lacks."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir

from ..check.backend import FATAL_ONLY, BackendError, Run, Start, session_of
from ..errors import ProofFailed, first_line

THREADS = 2
CPU, TWIN = "cpu", "twin"
# ONNX Runtime's word for a node that its CPU has no kernel for, which says nothing against the file.
NO_KERNEL = "NotImplemented"


@dataclass(frozen=True)
class Side:
    """A model, what runs it, and how.

    Attributes
    ----------
    checked
        ``cpu``: ONNX Runtime; ``twin``: onnx.reference with the executable twins.
    how
        The same for people.
    run
        From arrays by name to arrays by name. Raises BackendError.
    warned
        What the twins said meanwhile, each once.
    """

    checked: str
    how: str
    run: Run
    warned: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where a model is run.

    Attributes
    ----------
    name
        For people.
    start
        Makes the session: see :func:`session_of`.
    twins
        Whether twins may stand in for operators that ONNX Runtime lacks there.
    """

    name: str = "the CPU"
    start: Start | None = None
    twins: bool = True


HERE = Place()


def side_of(
    model: ir.Model, what: str, *, as_written: bool = False, outputs: Collection[str] = (), place: Place = HERE
) -> Side:
    """Load a model.

    Parameters
    ----------
    model
        Left as it is.
    what
        ``the source`` or ``the result``, for the errors.
    as_written
        Whether ONNX Runtime must run the graph as it stands but for its constants, so that none of its fusions stands
        between the file and what it means.
    outputs
        Values to give beside the outputs.
    place
        Where it is run.

    Raises
    ------
    ProofFailed
        If nothing can run it.
    """
    try:
        import onnxruntime as ort
    except ModuleNotFoundError as error:
        raise ProofFailed(
            "source and result are run before anything is written, and ONNX Runtime isn't installed; "
            "pip install 'maskport[cpu]', or leave the check out"
        ) from error
    names = [*dict.fromkeys([*(str(value.name) for value in model.graph.outputs), *outputs])]
    options = ort.SessionOptions()
    options.log_severity_level = FATAL_ONLY
    options.intra_op_num_threads = THREADS
    if as_written:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        session = session_of(model, options, names if outputs else (), place.start)
    except Exception as error:
        if type(error).__name__ != NO_KERNEL or not place.twins:
            raise ProofFailed(f"ONNX Runtime can't load {what}: {first_line(error)}") from error
        return _twin(model, what, names, first_line(error))

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        try:
            found = dict(zip(names, session.run(names, dict(inputs)), strict=True))
        except Exception as error:
            raise BackendError(first_line(error)) from error
        if other := [name for name, array in found.items() if not isinstance(array, np.ndarray)]:
            raise BackendError(f"the output {other[0]!r} is no tensor, so it can't be compared")
        return found

    return Side(CPU, f"onnxruntime {ort.__version__} on {place.name}", run)


def _twin(model: ir.Model, what: str, names: list[str], reason: str) -> Side:
    from ..twins import evaluator, lacking

    proto = ir.to_proto(model)
    if missing := lacking(proto):
        raise ProofFailed(
            f"{what} can't be run here: {reason}; {', '.join(missing)} has no executable twin either. "
            "Leave the check out to write it unproven"
        )
    given = {value.name for value in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in given)
    evaluate = evaluator(proto)
    warned: dict[str, None] = {}

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        try:
            with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
                warnings.simplefilter("always")
                found = dict(zip(names, evaluate.run(names, dict(inputs)), strict=True))
        except Exception as error:
            raise BackendError(first_line(error)) from error
        warned.update(
            dict.fromkeys(str(w.message).partition("\n")[0] for w in caught if w.category.__name__ == "KernelsDisagree")
        )
        return {name: np.asarray(array) for name, array in found.items()}

    return Side(
        TWIN, f"onnx.reference {onnx.__version__} with Maskport's twins of ONNX Runtime's operators", run, warned
    )
