"""What ONNX Runtime's own session offers, by executable twins: of a file whose operators the CPU has no kernel for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from ...export.twins import evaluator
from ...runtime.element_types import ELEMENT_TYPES, STRING
from .inference import CPU, Declared, Meta

__all__ = ["TwinInference"]

NAMES = {element.onnx: name for name, element in ELEMENT_TYPES.items()} | {onnx.TensorProto.STRING: STRING}
BFLOAT16 = onnx.TensorProto.BFLOAT16


class TwinInference:
    """A model that is run node by node in this process, with the methods that running a model takes.

    It is slow, and says nothing of the kernels that a device would run. Inputs of bfloat16, which numpy doesn't have,
    are taken as float32; outputs of it are ml_dtypes'.

    Parameters
    ----------
    source
        Path or bytes of a model.

    Raises
    ------
    NotImplementedError
        If an operator has no twin either, or an input is no tensor.
    """

    def __init__(self, source: str | os.PathLike[str] | bytes) -> None:
        self._model = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source)
        self._run = evaluator(self._model)
        initialized = {tensor.name for tensor in self._model.graph.initializer}
        self._inputs = [value for value in self._model.graph.input if value.name not in initialized]
        self._declared = [_declared(value) for value in self._inputs], [_declared(v) for v in self._model.graph.output]

    def get_inputs(self) -> list[Declared]:
        """Return the inputs in the order of the file."""
        return self._declared[0]

    def get_outputs(self) -> list[Declared]:
        """Return the outputs in the order of the file."""
        return self._declared[1]

    def get_modelmeta(self) -> Meta:
        """Return what the file says of itself."""
        return Meta({entry.key: entry.value for entry in self._model.metadata_props})

    def get_providers(self) -> list[str]:
        """Return the CPU, where it runs."""
        return [CPU]

    def disable_fallback(self) -> None:
        """Do nothing: it never falls back."""

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the model once; arrays by input name."""
        halves = {value.name for value in self._inputs if value.type.tensor_type.elem_type == BFLOAT16}
        given = {name: array.astype(ml_dtypes.bfloat16) if name in halves else array for name, array in feeds.items()}
        wanted = list(names) if names else [value.name for value in self._model.graph.output]
        return [np.asarray(array) for array in self._run.run(wanted, given)]


def _declared(value: onnx.ValueInfoProto) -> Declared:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or tensor.elem_type not in NAMES:
        raise NotImplementedError(f"{value.name} is no tensor of a type that is known")
    shape: list[int | str | None] = []
    if tensor.HasField("shape"):
        shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    return Declared(value.name, "tensor(float)" if tensor.elem_type == BFLOAT16 else NAMES[tensor.elem_type], shape)
