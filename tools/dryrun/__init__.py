"""The CUDA dry run: which kernels a model launches, on a machine without a GPU.

run                          a model, and the report on it
trace, kernels               the report, and what the names of kernels tell
model                        inputs, as a file declares them
process, child               the process in which ONNX Runtime meets the null device, and what it does there
reading, device_log, profile from the device's log and ONNX Runtime's profile to what each node did
capture                      whether a run can be a CUDA graph
libraries, gpus, native/     the stand-in libraries, and the devices that they stand in for
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .run import dryrun
    from .trace import Trace

__all__ = ["Trace", "dryrun"]

_FILES = {"Trace": "trace", "dryrun": "run"}


def __getattr__(name: str) -> object:
    # Lazy, so that the child process and the command line import no more than they need.
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_FILES[name]}", __name__), name)


class _Function(ModuleType):
    """The package and its function share a name: ``maskport.tools.dryrun`` is both, whichever was imported first."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return __getattr__("dryrun")(*args, **kwargs)  # type: ignore[operator]


sys.modules[__name__].__class__ = _Function
