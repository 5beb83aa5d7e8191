"""The most memory that this process has held."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

STATUS, REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")
# What makes the kernel forget the peak so far.
FORGET = "5"


def restart_peak() -> None:
    """Forget the peak so far, where the system can."""
    with contextlib.suppress(OSError):
        REFERENCES.write_text(FORGET)


def peak_megabytes() -> float | None:
    """Return the peak of resident memory since :func:`restart_peak`, in MB; None where the system doesn't tell."""
    # Not ru_maxrss: a process inherits that from the one that started it.
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 / 1e6 if found else None
