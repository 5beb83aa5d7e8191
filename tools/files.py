"""Files that a command writes."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .errors import ToolError


def check_output(path: Path) -> None:
    """Refuse a path that can't be written before the work begins, not after.

    Raises
    ------
    ToolError
        If it is a folder, lies below a file, or where nothing may be written.
    """
    if path.is_dir():
        raise ToolError(f"{path} is a folder; give the name of a file")
    parent = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    if not parent.is_dir() or not os.access(path if path.exists() else parent, os.W_OK):
        raise ToolError(f"{path} can't be written: {parent} is {'read-only' if parent.is_dir() else 'no folder'}")


def megabytes(path: Path) -> float:
    """Return the size of a model on disk: of its file, and of the weights beside it."""
    return sum(file.stat().st_size for file in (path, path.with_name(f"{path.name}.data")) if file.exists()) / 1e6


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name as a ``.npz`` file; unlike `numpy.savez`, it takes any name.

    Raises
    ------
    ToolError
        If an array doesn't hold numbers.
    """
    if other := [name for name, array in arrays.items() if array.dtype.hasobject]:
        raise ToolError(f"{path} can't be written: {', '.join(other)} holds no numbers")
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
