"""A function called where there is a null CUDA device: for tests of host code that needs CUDA."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .device_log import Line, parts, read_log
from .process import LOG, run_child

GIB = 1 << 30


class Called(NamedTuple):
    """What a function returned, and what it asked of the device."""

    value: Any
    log: list[Line]

    def count(self, kind: str, name: str | None = None) -> int:
        """Return how many lines of the log are of a kind (and a name); see :class:`.device_log.Line`."""
        return sum(line.kind == kind and name in (None, line.name) for line in self.log)


def call_on_null_device(
    function: Callable[..., Any],
    *arguments: Any,
    sm: int = 90,
    cudnn: str = "accept",
    seconds: float = 120,
    memory: int = 4 * GIB,
) -> Called:
    """Call a function in a child process whose CUDA device is the null device.

    Values on the device are meaningless: what a kernel computes is never written.

    Parameters
    ----------
    function
        A function at the top of its file, which the child loads anew: it can't import its neighbours relatively.
    *arguments
        Of the function: what JSON can hold. So is what it returns.
    sm, cudnn, seconds, memory
        As of :func:`.run.dryrun`.

    Raises
    ------
    AssertionError
        If the function raises, with its traceback.
    ToolError
        If the child can't be had, takes too long, or ends in a crash.
    """
    with tempfile.TemporaryDirectory(prefix="maskport-null-") as name:
        folder = Path(name)
        request = {
            "file": inspect.getfile(function),
            "function": function.__name__,
            "arguments": arguments,
            "memory": memory,
        }
        result = run_child("call", request, folder, sm=sm, cudnn=cudnn, seconds=seconds)
        if result["error"] is not None:
            raise AssertionError(f"{function.__name__} failed on the null device:\n{result['error']}{result['said']}")
        log = [line for mark, lines in parts(read_log(folder / LOG)) if mark.name != "load" for line in lines]
        return Called(result["value"], log)
