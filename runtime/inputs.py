"""Inputs are checked, and brought into the layout that ONNX Runtime reads, before they reach it.

What ONNX Runtime does with what is wrong ranges from a message about another node to the end of the process (an
empty batch in GroupQueryAttention), and some of it, like one symbolic axis with two sizes, it doesn't look at.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .element_types import ELEMENT_TYPES, STRING, ElementType
from .errors import InputError

# Shapes that passed are remembered; a server with free lengths sees many, and must not grow with them.
REMEMBERED = 4096


@dataclass(frozen=True)
class DeclaredValue:
    """What a model says of one input or output.

    Attributes
    ----------
    name : str
    type : str
        ONNX Runtime's name of the type, ``"tensor(float)"``.
    shape : tuple of int, str or None
        Fixed sizes, names of free axes, None for an axis without a name.
    """

    name: str
    type: str
    shape: tuple[int | str | None, ...]

    @property
    def element(self) -> ElementType | None:
        """The element type; None for strings and for what is no tensor."""
        return ELEMENT_TYPES.get(self.type)

    def __str__(self) -> str:
        dims = ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.element.torch.removeprefix('torch.') if self.element else self.type} [{dims}]"


class Inputs:
    """The declared inputs of a model, ready to check what is given for them.

    Parameters
    ----------
    declared
        In the order of the file.
    device
        ``"cpu"`` or ``"cuda:N"``: where the model runs.
    """

    def __init__(self, declared: Iterable[DeclaredValue], device: str) -> None:
        self.declared = tuple(declared)
        self._device = device
        self._plan = [(item.name, item, item.element and item.element.numpy) for item in self.declared]
        self._names = {item.name for item in self.declared}
        # The batch is the first axis of what has at least two, and every axis of that name.
        first = {item.shape[0] for item in self.declared if len(item.shape) > 1}
        named = {dim for item in self.declared for dim in item.shape if str(dim).startswith("batch")}
        self._batch = {dim for dim in first | named if isinstance(dim, str)}
        self._passed: set[tuple[tuple[int, ...], ...]] = set()

    def ready(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return contiguous arrays and tensors of the declared types and shapes, in the order of the file.

        Raises
        ------
        InputError
            If a name is unknown or missing, or a value can't be taken.
        """
        if not isinstance(given, Mapping):
            raise InputError(f"inputs are of type {type(given).__name__}; give a dict of name to array")
        if given.keys() != self._names:
            raise InputError(self._wrong_names(given))
        values = {}
        for name, declared, dtype in self._plan:
            value = given[name]
            # numpy takes None for float64.
            if type(value) is np.ndarray and dtype is not None and value.dtype == dtype:
                flags = value.flags
                values[name] = value if flags.c_contiguous and flags.aligned else _copy(declared, value, dtype)
            else:
                values[name] = self._convert(declared, value)
        shapes = tuple([value.shape for value in values.values()])
        if shapes not in self._passed:
            self._check_shapes(values)
            if len(self._passed) >= REMEMBERED:
                self._passed.clear()
            self._passed.add(shapes)
        return values

    def _wrong_names(self, given: Mapping[str, Any]) -> str:
        unknown = [str(name) for name in given if name not in self._names]
        missing = [item.name for item in self.declared if item.name not in given]
        names = ", ".join(item.name for item in self.declared) or "none"
        return f"{_listed('unknown', unknown)}{_listed('missing', missing)}the model's inputs are {names}"

    def _convert(self, declared: DeclaredValue, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return _array(declared, value)
        if is_torch(value):
            return self._tensor(declared, value)
        raise InputError(
            f"input {declared.name!r} is of type {type(value).__name__}; give a numpy array or a torch tensor: "
            f"the model takes {declared}"
        )

    def _tensor(self, declared: DeclaredValue, tensor: Any) -> Any:
        if tensor.is_nested or str(tensor.layout) != "torch.strided":
            raise InputError(
                f"input {declared.name!r} is a nested or sparse tensor; the model takes {declared}: pad it"
            )
        if declared.element is None or str(tensor.dtype) != declared.element.torch:
            hint = f"; cast it with .to({declared.element.torch})" if declared.element else ""
            raise InputError(_mismatch(declared, tensor) + hint)
        if str(tensor.device) not in ("cpu", self._device):
            raise InputError(
                f"input {declared.name!r} is on {tensor.device}, the session runs on {self._device}; "
                f"move the tensor there, or open the session on the tensor's device"
            )
        try:
            # A negative view (of a conjugate's imaginary part) has another value than its memory.
            tensor = tensor.detach().resolve_neg().contiguous()
            has_memory = tensor.data_ptr() != 0 or tensor.numel() == 0
        except RuntimeError as error:
            raise InputError(f"input {declared.name!r} can't be read: {str(error).partition('.')[0]}") from error
        if not has_memory:
            raise InputError(f"input {declared.name!r} is a {type(tensor).__name__} without memory; give a real tensor")
        return tensor

    def _check_shapes(self, values: Mapping[str, Any]) -> None:
        sizes: dict[str, tuple[int, str]] = {}
        for declared in self.declared:
            value = values[declared.name]
            if len(value.shape) != len(declared.shape):
                raise InputError(f"{_mismatch(declared, value)}; it takes {len(declared.shape)} dimensions")
            for axis, (size, dim) in enumerate(zip(value.shape, declared.shape, strict=True)):
                if isinstance(dim, int) and size != dim:
                    raise InputError(f"{_mismatch(declared, value)}; axis {axis} must be {dim}")
                if isinstance(dim, str):
                    seen, where = sizes.setdefault(dim, (size, declared.name))
                    if seen != size:
                        raise InputError(f"{_mismatch(declared, value)}; {dim} is {seen} in {where!r}")
                is_batch = dim in self._batch or (dim is None and axis == 0 and len(declared.shape) > 1)
                if size == 0 and is_batch:
                    raise InputError(f"{_mismatch(declared, value)}; the batch is empty: give at least one row")


def is_torch(value: object) -> bool:
    """Say whether a value is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def _array(declared: DeclaredValue, array: np.ndarray) -> np.ndarray:
    dtype = declared.element and declared.element.numpy
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(
            f"input {declared.name!r} is a masked array, whose mask would be lost; fill it first: .filled(0)"
        )
    if declared.type == STRING:
        if array.dtype.kind == "U" or (array.dtype == object and all(isinstance(item, str) for item in array.flat)):
            return _copy(declared, array, np.dtype(object))
        raise InputError(f"{_mismatch(declared, array)}; give an array of str")
    if dtype is None:
        hint = "give a torch tensor: numpy has no bfloat16" if declared.element else "Session takes tensors only"
        raise InputError(f"{_mismatch(declared, array)}; {hint}")
    if array.dtype.newbyteorder("=") != dtype:
        raise InputError(f"{_mismatch(declared, array)}; cast it with .astype({dtype.name!r})")
    return _copy(declared, array, dtype)


def _copy(declared: DeclaredValue, array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return the array in native byte order, C order and aligned memory."""
    try:
        return np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED", "ENSUREARRAY"])
    except MemoryError as error:
        raise InputError(f"{_mismatch(declared, array)}; there is no memory to make it contiguous") from error


def _mismatch(declared: DeclaredValue, value: Any) -> str:
    return f"input {declared.name!r} is {value.dtype} {list(value.shape)}, the model takes {declared}"


def _listed(what: str, names: list[str]) -> str:
    return f"{what} input{'s' if len(names) > 1 else ''} {', '.join(names)}; " if names else ""
