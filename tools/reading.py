"""From a file to the attention in it, or one line that says why not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.model_file import look
from .errors import ToolError

if TYPE_CHECKING:
    from ..export.report import Report


def read_attention(path: Path, *, check: bool = True) -> Report:
    """Inspect a file; see `maskport.export.inspect`.

    Raises
    ------
    ToolError, ModelError
        If it is no model that can be read, or a package is missing.
    """
    look(path)
    try:
        from ..export.errors import InspectError
        from ..export.inspector import inspect
    except ModuleNotFoundError as error:
        raise ToolError(f"reading a graph needs {error.name}; pip install 'maskport[graph]'") from error
    try:
        return inspect(path, check=check)
    except InspectError as error:
        raise ToolError(str(error)) from error
