"""Writing a model: one file, or a file with its weights beside it."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from .errors import ExportError

# A protobuf message ends at 2 GiB; the graph needs room beside its weights.
MAX_INLINE_BYTES = 1 << 30


def bytes_of(model: ir.Model) -> int:
    """Return the size of the weights."""
    weights = (value.const_value for value in model.graph.initializers.values())
    return sum(weight.nbytes for weight in weights if weight is not None)


def is_large(model: ir.Model) -> bool:
    """Whether the weights are too large to stand in the model's own file."""
    return bytes_of(model) > MAX_INLINE_BYTES


def save(model: ir.Model, path: Path) -> None:
    """Write a model; large weights go into ``<name>.data`` beside it. The model keeps its weights in memory."""
    ir.save(model, path, external_data=f"{path.name}.data" if is_large(model) else None)


def prepare(path: Path) -> None:
    """Make the folder of a file that is to be written, and see that it can be: before the work, not after.

    Raises
    ------
    ExportError
        If it can't.
    """
    if path.is_dir():
        raise ExportError(f"{path} is a folder; give the path of a file, such as {path / 'model.onnx'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Opened as the export will, so that a folder or a disk that can't be written is known now.
        existed = path.exists()
        path.open("ab").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise ExportError(f"{path} can't be written: {error.strerror or error}; give another path") from error
