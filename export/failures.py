"""A failure of PyTorch's exporter, told in a few lines."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from torch import nn

PACKAGE = Path(__file__).resolve().parent
LIBRARIES = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib")}

# Lines that lead into PyTorch, not into the module.
NOISE = ("Caused by:", "For more", "For extended", "If you suspect", "If you need", "User Stack")


def explain(module: nn.Module, error: BaseException) -> str:
    """Tell a failure of PyTorch's exporter in a few lines: what, and at which line of the module."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = [line.strip() for line in str(error).splitlines()]
    text = [line for line in text if line and not line.startswith(NOISE)] or ["no message"]
    lines = [f"{type(module).__name__} can't be exported: {type(error).__name__}: {text[0]}", *text[1:4]]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    if frames:
        last = frames[-1]
        lines.append(f"at {last.filename}:{last.lineno} in {last.name}: {last.line}")
    return "\n  ".join(lines)


def _is_users(filename: str) -> bool:
    path = Path(filename)
    return path.is_file() and path.parent != PACKAGE and not any(path.is_relative_to(root) for root in LIBRARIES)
