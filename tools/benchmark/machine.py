"""On what it was measured."""

from __future__ import annotations

import os
import platform
import re
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "onnxruntime", "onnxruntime-gpu", "onnxscript", "transformers", "ctranslate2", "openvino")


def threads() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Work:
    """What the machine has done since this was made.

    Attributes
    ----------
    ours
        Seconds of CPU that the candidates used; whoever measures adds to it.
    """

    def __init__(self) -> None:
        self.ours = 0.0
        self._start, self._busy, self._own = time.monotonic(), _busy(), time.process_time()

    def elsewhere(self) -> float | None:
        """Return the share of the cores that others used; None where the system doesn't tell."""
        busy, seconds = _busy(), time.monotonic() - self._start
        if busy is None or self._busy is None:
            return None
        ours = self.ours + time.process_time() - self._own
        return max(0.0, busy - self._busy - ours) / (seconds * (os.cpu_count() or 1))


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


def _busy() -> float | None:
    """Return the seconds of CPU that all processes have used, those that a host took from us included."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, _idle, _wait, interrupt, soft, stolen = map(int, fields)
    return (user + nice + system + interrupt + soft + stolen) / os.sysconf("SC_CLK_TCK")


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
