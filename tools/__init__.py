"""What a person or a CI job runs: the command line, the validation of a file, the demonstration.

cli, commands, screen          the commands, how each runs, what it shows
spec, builtin                  SPEC: how a module is named, and the built-in ones
validation, verdict            a candidate against a reference, and what was found
inputs, files                  what a command reads, draws and writes
run, export_report, tables     results as tables that fit 80 columns
demo                           two models exported, validated and put to work
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .validation import validate
    from .verdict import Verdict

__all__ = ["Verdict", "validate"]


def __getattr__(name: str) -> object:
    # Lazy, so that the help of the command line doesn't wait for numpy and ONNX Runtime.
    if name == "validate":
        from .validation import validate

        return validate
    if name == "Verdict":
        from .verdict import Verdict

        return Verdict
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
