"""What a model's file says of itself, read without ONNX Runtime: a CUDA-only model loads nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.element_types import ELEMENT_TYPES
from ...runtime.inputs import DeclaredValue
from ...runtime.packing import packing_inputs, read_packing
from ..errors import ToolError
from ..inputs import draw_inputs

if TYPE_CHECKING:
    import onnx

BFLOAT16, FLOAT32 = "tensor(bfloat16)", "tensor(float)"
TYPES = {element.onnx: name for name, element in ELEMENT_TYPES.items()}


@dataclass(frozen=True)
class DeclaredModel:
    """The inputs, outputs and metadata of a file, as :class:`~maskport.runtime.Session` has them."""

    inputs: tuple[DeclaredValue, ...]
    outputs: tuple[DeclaredValue, ...]
    metadata: dict[str, str]

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs."""
        return [value.name for value in self.inputs]

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        return [value.name for value in self.outputs]


def read_model(path: Path) -> onnx.ModelProto:
    """Read a file without its external data.

    Raises
    ------
    ToolError
        If it can't be read, or is no model.
    """
    import onnx

    from ...runtime.model_file import look

    look(path)
    try:
        return onnx.load(path, load_external_data=False)
    except Exception as error:
        raise ToolError(f"{path} is damaged, cut short, or no ONNX model; make it again") from error


def declared(model: onnx.ModelProto) -> DeclaredModel:
    """Return what a model says of itself."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = (value for value in model.graph.input if value.name not in weights)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    return DeclaredModel(_values(inputs), _values(model.graph.output), metadata)


def _values(values: Iterable[Any]) -> tuple[DeclaredValue, ...]:
    found = []
    for value in values:
        tensor = value.type.tensor_type
        shape = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim)
        found.append(DeclaredValue(value.name, TYPES.get(tensor.elem_type, "tensor(string)"), shape))
    return tuple(found)


def fill(model: DeclaredModel, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return an array for every input.

    Parameters
    ----------
    model
        What is declared.
    given
        Arrays, or shapes of what is drawn, by name; other inputs are drawn as well. bfloat16 is given as uint16, its
        bits.

    Raises
    ------
    ToolError
        If a name isn't an input's, or a shape doesn't fit.
    """
    names = {value.name for value in model.inputs}
    if unknown := [str(name) for name in given if name not in names]:
        raise ToolError(f"inputs has {', '.join(unknown)}; the model's inputs are {', '.join(sorted(names))}")
    arrays = {name: np.asarray(value, order="C") for name, value in given.items() if isinstance(value, np.ndarray)}
    sizes = {name: tuple(map(int, value)) for name, value in given.items() if name not in arrays}
    sizes |= {name: array.shape for name, array in arrays.items()}
    # numpy has no bfloat16: drawn as float32, whose upper half it is.
    halves = {value.name for value in model.inputs if value.type == BFLOAT16}
    plain = tuple(
        DeclaredValue(value.name, FLOAT32, value.shape) if value.name in halves else value for value in model.inputs
    )
    drawn = draw_inputs(DeclaredModel(plain, model.outputs, model.metadata), sizes)
    for name in halves - arrays.keys():
        drawn[name] = (drawn[name].view(np.uint32) >> 16).astype(np.uint16)
    for value in model.inputs:
        dtype = value.element and value.element.numpy
        array = arrays.get(value.name)
        if array is not None and dtype is not None and array.dtype != dtype:
            raise ToolError(f"input {value.name!r} is {array.dtype}, the model takes {value}; cast it with .astype")
    filled = {value.name: arrays.get(value.name, drawn[value.name]) for value in model.inputs}
    for packed in read_packing(model.metadata, model.inputs):
        if not given.keys() & packing_inputs([packed]):
            filled |= packed.inputs(filled[packed.mask])
    return filled
