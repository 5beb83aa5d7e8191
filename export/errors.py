"""The error of the exporter."""

from __future__ import annotations


class ExportError(RuntimeError):
    """The module can't be exported as asked. The message says what was given and what to do."""
