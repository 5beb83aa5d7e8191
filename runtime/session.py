"""A model that is ready to run."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from .device import package_conflict, providers
from .errors import DeviceUnavailable, InputError, ModelError

# ONNX Runtime's names of element types.
DTYPES: dict[str, np.dtype[Any]] = {
    f"tensor({name})": np.dtype(dtype)
    for name, dtype in {
        "bool": np.bool_,
        "double": np.float64,
        "float": np.float32,
        "float16": np.float16,
        "int8": np.int8,
        "int16": np.int16,
        "int32": np.int32,
        "int64": np.int64,
        "uint8": np.uint8,
        "uint16": np.uint16,
        "uint32": np.uint32,
        "uint64": np.uint64,
    }.items()
}


class Session:
    """A model on a device: inputs and outputs by name, checked before they are run.

    Parameters
    ----------
    model
        Path of an ONNX file, or its bytes.
    device
        ``"cpu"``, ``"cuda"``, ``"cuda:N"``, or ``"auto"``: CUDA where it can be used, else the CPU.
        What is named is what runs: no device falls back to another in silence.

    Attributes
    ----------
    device : str
        ``"cpu"`` or ``"cuda:N"``: where the model runs.
    input_names, output_names : list of str
        In the order of the file.
    metadata : dict of str to str
        The file's metadata properties.

    Raises
    ------
    ModelError
        If the file can't be read, or ONNX Runtime can't load it.
    DeviceUnavailable
        If the device can't be used on this machine.

    Notes
    -----
    Denormal numbers are flushed to zero: masked positions leave denormal probabilities that slow the
    following product up to two times. ONNX Runtime applies this to its threads from the first session of a
    process.

    Examples
    --------
    >>> session = Session("model.onnx", device="cpu")  # doctest: +SKIP
    >>> session.run({"src": src, "attention_mask": mask})["output"]  # doctest: +SKIP
    """

    def __init__(self, model: str | os.PathLike[str] | bytes, device: str = "auto") -> None:
        if conflict := package_conflict():
            warnings.warn(conflict, RuntimeWarning, stacklevel=2)
        wanted = providers(device)
        options = ort.SessionOptions()
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        # The Python class repeats a failed CUDA run on the CPU unless it is told not to.
        self._session = _load(model, sess_options=options, providers=wanted, enable_fallback=0)
        self._session.disable_fallback()
        first = wanted[0] if isinstance(wanted[0], str) else wanted[0][0]
        if self._session.get_providers()[0] != first:
            raise DeviceUnavailable(
                f"device {device!r} can't be used: ONNX Runtime didn't start {first}; its log says why"
            )
        self.device = "cpu" if isinstance(wanted[0], str) else f"cuda:{wanted[0][1]['device_id']}"
        self._inputs = {node.name: node for node in self._session.get_inputs()}
        self.input_names = list(self._inputs)
        self.output_names = [node.name for node in self._session.get_outputs()]
        self.metadata: dict[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model once.

        Parameters
        ----------
        inputs
            Every input by name: numpy arrays or torch tensors. If one is a torch tensor, so are the outputs,
            on the same device.

        Returns
        -------
        dict
            Every output by name.

        Raises
        ------
        InputError
            If a name is unknown or missing, or a value's type, rank or size isn't what the model declares.
        ModelError
            If ONNX Runtime fails while it runs.
        """
        unknown, missing = inputs.keys() - self._inputs.keys(), self._inputs.keys() - inputs.keys()
        if unknown or missing:
            raise InputError(
                f"{_listed('unknown', unknown)}{_listed('missing', missing)}"
                f"the model's inputs are {', '.join(self.input_names)}"
            )
        arrays = {name: _to_numpy(name, value) for name, value in inputs.items()}
        self._check(arrays)
        try:
            outputs = self._session.run(self.output_names, arrays)
        except Exception as error:
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
            raise ModelError(f"ONNX Runtime failed on {shapes}: {_first_line(error)}") from error
        named = dict(zip(self.output_names, outputs, strict=True))
        device = next((value.device for value in inputs.values() if _is_torch(value)), None)
        if device is None:
            return named
        torch = sys.modules["torch"]
        return {name: torch.from_numpy(array).to(device) for name, array in named.items()}

    def _check(self, arrays: Mapping[str, np.ndarray]) -> None:
        sizes: dict[str, tuple[int, str]] = {}
        for name, array in arrays.items():
            declared = self._inputs[name]
            dtype = DTYPES.get(declared.type)
            if dtype is not None and array.dtype != dtype:
                raise InputError(f"input {name!r} has dtype {array.dtype}, the model takes {dtype}")
            given, expected = list(array.shape), list(declared.shape)
            shapes = f"input {name!r} has shape {given}, the model takes [{', '.join(map(str, expected))}]"
            if len(given) != len(expected):
                raise InputError(shapes)
            for size, dim in zip(given, expected, strict=True):
                if isinstance(dim, int) and size != dim:
                    raise InputError(shapes)
                if isinstance(dim, str):
                    seen, where = sizes.setdefault(dim, (size, name))
                    if seen != size:
                        raise InputError(f"{shapes}; {dim} is {seen} in {where!r}")


def _load(model: str | os.PathLike[str] | bytes, **arguments: Any) -> ort.InferenceSession:
    what = f"these {len(model)} bytes" if isinstance(model, bytes) else str(model)
    if not isinstance(model, bytes):
        path = Path(model)
        if not path.is_file():
            raise ModelError(f"{what} is {'a folder' if path.is_dir() else 'no file'}; give the path of an ONNX file")
        model = what
    try:
        return ort.InferenceSession(model, **arguments)
    except Exception as error:
        raise ModelError(f"ONNX Runtime can't load {what}: {_first_line(error)}") from error


def _is_torch(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "torch"


def _to_numpy(name: str, value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    if not _is_torch(value):
        raise InputError(f"input {name!r} is of type {type(value).__name__}; give a numpy array or a torch tensor")
    try:
        array: np.ndarray = value.detach().cpu().numpy()
    except TypeError as error:
        raise InputError(f"input {name!r} has dtype {value.dtype}, which numpy doesn't have") from error
    return array


def _listed(what: str, names: set[str]) -> str:
    return f"{what} input{'s' if len(names) > 1 else ''} {', '.join(sorted(names))}; " if names else ""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
