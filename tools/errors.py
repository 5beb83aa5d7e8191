"""The error of the tools."""

from __future__ import annotations

from ..runtime.errors import MaskportError


class ToolError(MaskportError):
    """What was asked for can't be done. The message says what was given, what was expected and what to do."""
