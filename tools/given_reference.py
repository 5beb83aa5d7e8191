"""The reference that a command names: an .onnx file, or a SPEC that is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .errors import ToolError
from .screen import Screen


def given_reference(screen: Screen, against: str, examples: dict[str, Any] | None) -> tuple[Any, Any]:
    """Return a reference and its example inputs: a file's path and the arrays, or a module and tensors.

    Parameters
    ----------
    screen
        Shows that a module is built.
    against
        Path of an .onnx file, or a SPEC.
    examples
        Arrays by name; None for those that a SPEC brings, or that are drawn for a file.

    Raises
    ------
    MaskportError, ExportError
        If the module can't be built, or PyTorch doesn't have the type of an array.
    """
    if Path(against).suffix == ".onnx":
        return against, examples
    from .spec import load

    with screen.progress(f"Build {against}"):
        source = load(against)
    return source.module, source.example_inputs if examples is None else _tensors(examples)


def _tensors(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return arrays as tensors, by name.

    Raises
    ------
    ToolError
        If PyTorch doesn't have their type.
    """
    import torch

    found = {}
    for name, array in arrays.items():
        try:
            found[name] = torch.from_numpy(np.array(array, array.dtype.newbyteorder("=")))
        except TypeError as error:
            raise ToolError(f"input {name!r} is {array.dtype}, which PyTorch doesn't have") from error
    return found
