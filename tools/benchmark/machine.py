"""On what it was measured."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "onnxruntime", "onnxruntime-gpu", "onnxscript", "transformers", "ctranslate2", "openvino")


def threads() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> float:
    """Return the load average of the last minute; 0 where the system doesn't tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def describe() -> dict[str, Any]:
    """Return the hardware and the versions."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "cpu": _cpu(),
        "cores": threads(),
        "memory_gb": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def _cpu() -> str:
    try:
        found = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    except OSError:
        return platform.processor()
    # A virtual machine hides the model's name, not its family.
    family = ", ".join(f"{word} {found[word]}" for word in ("cpu family", "model") if word in found)
    name = found.get("model name", platform.processor())
    widest = next((flag for flag in ("avx512f", "avx2", "avx") if flag in found.get("flags", "").split()), "")
    return f"{name} ({', '.join(part for part in (family, widest) if part)})"


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        return None
