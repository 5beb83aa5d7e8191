"""The errors of the tools."""

from __future__ import annotations

from ..runtime.errors import MaskportError


class ToolError(MaskportError):
    """What was asked for can't be done. The message says what was given, what was expected and what to do."""


class Crashed(MaskportError):
    """A model ended its process by a signal, or had to be ended; the message says how, and on what."""


class Refused(Exception):
    """The reference of a validation can't take the inputs; the message is what it said."""
