"""The formats in which a command tells what it found."""

from __future__ import annotations

from collections.abc import Sequence

from .errors import ToolError

__all__ = ["known_format"]


def known_format(given: str, known: Sequence[str], as_json: bool = False) -> str:
    """Return a format that a command has; ``--json`` is short for ``--format json``.

    Raises
    ------
    ToolError
        If the command doesn't have it.
    """
    if given not in known:
        raise ToolError(f"--format is {given!r}; give one of {', '.join(known)}")
    return "json" if as_json else given
