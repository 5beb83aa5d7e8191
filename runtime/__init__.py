"""Running a model: a :class:`Session` checks its inputs and runs on the device that was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .errors import AssumptionViolated, DeviceUnavailable, InputError, MaskportError, ModelError
    from .placement import PlacedNode
    from .session import Session

__all__ = [
    "AssumptionViolated",
    "DeviceUnavailable",
    "InputError",
    "MaskportError",
    "ModelError",
    "PlacedNode",
    "Session",
]


def __getattr__(name: str) -> object:
    # Lazy, so that the errors can be caught where ONNX Runtime is slow to import or not installed.
    if name == "Session":
        from .session import Session

        return Session
    if name == "PlacedNode":
        from .placement import PlacedNode

        return PlacedNode
    if name in __all__:
        from . import errors

        return getattr(errors, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
