"""PyTorch to ONNX: :func:`export` writes a file that keeps every mask input and every dynamic axis.

Nothing here imports PyTorch until :func:`export` is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import ExportError
    from .exporter import Exported, export

__all__ = ["ExportError", "Exported", "export"]


def __getattr__(name: str) -> object:
    # Lazy, so that the error can be caught where onnx-ir is slow to import or not installed.
    if name == "ExportError":
        from .errors import ExportError

        return ExportError
    if name in __all__:
        from . import exporter

        return getattr(exporter, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
