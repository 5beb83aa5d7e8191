"""What a project's pyproject.toml says under ``[tool.maskport]``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from .errors import ToolError

__all__ = ["PROJECT", "section"]

PROJECT = "pyproject.toml"


def section(folder: Path, name: str) -> dict[str, Any]:
    """Return the table ``[tool.maskport.NAME]`` of a folder's pyproject.toml, empty if there is none.

    Raises
    ------
    ToolError
        If the file can't be read, or holds something else by that name.
    """
    path = folder / PROJECT
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"{path} can't be read: {error}") from error
    try:
        said = tomllib.loads(text).get("tool", {}).get("maskport", {}).get(name, {})
    except (tomllib.TOMLDecodeError, AttributeError) as error:
        raise ToolError(f"{path} can't be read: {error}") from error
    if not isinstance(said, dict):
        raise ToolError(f"[tool.maskport.{name}] of {path} is {said!r}; give a table")
    return said
