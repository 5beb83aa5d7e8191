"""PyTorch to ONNX: :func:`export` writes a file that keeps every mask input and every dynamic axis.

:func:`inspect` reads the masks of any ONNX file back, and :func:`optimize` makes it fast by what they mean. Nothing
here imports PyTorch until :func:`export` is called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import CheckFailed, ExportError, InspectError, OptimizeError, ProofFailed
    from .exporter import Exported, export
    from .inspector import inspect
    from .optimized import Optimized
    from .optimizer import optimize
    from .report import Report
    from .tuning.workload import Workload

__all__ = [
    "CheckFailed",
    "ExportError",
    "Exported",
    "InspectError",
    "OptimizeError",
    "Optimized",
    "ProofFailed",
    "Report",
    "Workload",
    "export",
    "inspect",
    "optimize",
]

_FILES = {
    "CheckFailed": "errors",
    "ExportError": "errors",
    "OptimizeError": "errors",
    "ProofFailed": "errors",
    "Exported": "exporter",
    "export": "exporter",
    "InspectError": "errors",
    "Report": "report",
    "inspect": "inspector",
    "Optimized": "optimized",
    "optimize": "optimizer",
    "Workload": "tuning.workload",
}


def __getattr__(name: str) -> object:
    # Lazy, so that the errors can be caught where onnx-ir is slow to import or not installed.
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_FILES[name]}", __name__), name)
