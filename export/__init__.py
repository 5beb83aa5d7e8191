"""PyTorch to ONNX: :func:`export` writes a file that keeps every mask input and every dynamic axis.

Nothing here imports PyTorch until :func:`export` is called.
"""

from __future__ import annotations

from .errors import ExportError
from .exporter import Exported, export

__all__ = ["ExportError", "Exported", "export"]
