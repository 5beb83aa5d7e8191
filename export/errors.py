"""The errors of exporting, reading and optimizing."""

from __future__ import annotations


class ExportError(RuntimeError):
    """The module can't be exported as asked. The message says what was given and what to do."""


class CheckFailed(ExportError):
    """The module was exported, and the file doesn't do what the module does: nothing was written."""


class ProofFailed(ExportError):
    """A rewritten model does not do what its source does, or can't be shown to: nothing was written."""


class OptimizeError(ExportError):
    """A model can't be optimized as asked. The message says what was given and what to do."""


class InspectError(Exception):
    """A file that is no model, or a model that can't be read."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its name."""
    return (str(error).splitlines() or [type(error).__name__])[0]
