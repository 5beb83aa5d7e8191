"""Running a model: a :class:`Session` checks its inputs and runs on the device that was asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import AssumptionViolated, DeviceUnavailable, InputError, MaskportError, ModelError
    from .inputs import DeclaredValue
    from .placement import PlacedNode
    from .session import Session

__all__ = [
    "AssumptionViolated",
    "DeclaredValue",
    "DeviceUnavailable",
    "InputError",
    "MaskportError",
    "ModelError",
    "PlacedNode",
    "Session",
]

MODULES = {"DeclaredValue": "inputs", "PlacedNode": "placement", "Session": "session"}


def __getattr__(name: str) -> object:
    # Lazy, so that the errors can be caught where ONNX Runtime is slow to import or not installed.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{MODULES.get(name, 'errors')}", __name__), name)
