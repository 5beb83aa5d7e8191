"""Inputs that declare no rank: ONNX Runtime tells them like scalars, and as scalars they must not be drawn."""

from __future__ import annotations

from typing import Any

from ..runtime import Session
from .errors import ToolError


def need_ranks(model: Any, session: Session) -> None:
    """Refuse a file with an input of no declared rank.

    Parameters
    ----------
    model : path or bytes
        The file.
    session
        In which it is loaded: the file is read only where an input has no axes.

    Raises
    ------
    ToolError
        If there is such an input.
    """
    if all(declared.shape for declared in session.inputs):
        return
    import onnx_ir as ir

    from ..export.load_model import load_model

    loaded, _ = load_model(model)
    for value in loaded.graph.inputs:
        if value.shape is None and isinstance(value.type, ir.TensorType):
            raise ToolError(
                f"input {value.name!r} has no declared rank, so nothing can be drawn for it; export it with its axes"
            )
