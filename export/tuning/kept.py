"""What was measured before, in the user's cache folder: a file for each machine, release and question."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnxruntime as ort

__all__ = ["folder", "keep", "kept", "machine"]


def machine() -> dict[str, Any]:
    """Return what a time depends on beside what is run."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"cpu": _cpu(), "cores": cores, "onnxruntime": ort.__version__, "maskport": version("maskport")}


def _cpu() -> str:
    try:
        found = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    except OSError:
        return platform.processor()
    # A virtual machine hides the model's name, not its family.
    family = ", ".join(f"{word} {found[word]}" for word in ("cpu family", "model") if word in found)
    return f"{found.get('model name', platform.processor())} ({family})"


def folder() -> Path:
    """Return where measurements are kept."""
    home = Path.home()
    usual = {"win32": home / "AppData" / "Local", "darwin": home / "Library" / "Caches"}
    base = os.environ.get("XDG_CACHE_HOME") or usual.get(sys.platform, home / ".cache")
    return Path(base) / "maskport" / "autotune"


def kept(question: dict[str, Any]) -> Any:
    """Return what was measured for a question; None if nothing was, or it can't be read."""
    try:
        found = json.loads(_file(question).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found.get("answer") if isinstance(found, dict) and found.get("question") == question else None


def keep(question: dict[str, Any], answer: Any) -> str | None:
    """Keep what was measured; return why it can't be kept, if so."""
    path = _file(question)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written whole or not at all: others may read it meanwhile.
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            json.dump({"question": question, "answer": answer}, file, indent=1)
        Path(file.name).replace(path)
    except OSError as error:
        return f"what was measured can't be kept in {path.parent}: {error.strerror}; set XDG_CACHE_HOME"
    return None


def _file(question: dict[str, Any]) -> Path:
    text = json.dumps(question, sort_keys=True)
    return folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"
