"""A first look at a file that is said to be a model, without ONNX Runtime."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ModelError

# What a file that is no model starts with -> what it is and what to do.
SIGNATURES = (
    (b"version https://git-lfs", "is a Git LFS pointer and not the file itself; run git lfs pull"),
    (b"PK\x03\x04", "is a zip archive or a PyTorch checkpoint; unpack it, or export the module first"),
    (b"\x80\x02", "is a Python pickle, perhaps a PyTorch checkpoint; export the module first"),
    (b"\x1f\x8b", "is a gzip archive; unpack it"),
    (b"\x89PNG", "is a PNG image"),
    (b"%PDF", "is a PDF"),
    (b"<", "is an HTML or XML text, perhaps the error page of a download; fetch the model again"),
    (b"{", "is a JSON text"),
)


def look(model: str | os.PathLike[str] | bytes) -> str:
    """Return what to call the model in messages, if its first bytes are not those of another kind of file.

    Raises
    ------
    ModelError
        If there is no such file, it is empty, or it is something else.
    """
    if isinstance(model, bytes):
        if not model:
            raise ModelError("the model is empty: it has 0 bytes; give the bytes of an ONNX file")
        return _known(f"the model of {len(model)} bytes", model)
    if not isinstance(model, str | os.PathLike):
        raise ModelError(f"the model is of type {type(model).__name__}; give the path or the bytes of an ONNX file")
    path = Path(model)
    if not path.is_file():
        raise ModelError(f"{path} is {'a folder' if path.is_dir() else 'no file'}; give the path of an ONNX file")
    try:
        with path.open("rb") as file:
            start = file.read(32)
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror}") from error
    if not start:
        raise ModelError(f"{path} is empty; give the path of an ONNX file")
    return _known(str(path), start)


def _known(what: str, start: bytes) -> str:
    for signature, meaning in SIGNATURES:
        if start.startswith(signature):
            raise ModelError(f"{what} is no ONNX model: it {meaning}")
    return what
