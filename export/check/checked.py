"""What the check before export returns has found, for the caller and for the file."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

CERTIFICATE_KEY = "maskport.certificate"
PAD_SAFE_KEY = "maskport.pad_safe"
ASSUMES_KEY = "maskport.assumes"
METADATA_VERSION = 1
PACKAGES = ("maskport", "torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "numpy")


@dataclass(frozen=True)
class CheckedCase:
    """One case that was run on both sides: its name, and the largest error on valid rows (None: it has none)."""

    name: str
    error: float | None


@dataclass
class Checked:
    """What was run and compared before the file was given out.

    Attributes
    ----------
    how
        What ran the file.
    seed
        Of everything that was drawn.
    cases
        In the order in which they were run.
    not_run
        Name and reason of every case or check that could not be run.
    notes
        What is right but worth knowing: padding rows and rows without a key that differ, inputs of which only the
        shape matters.
    limits
        Tolerance per unit of the largest value, by element type, with the reason.
    against
        What the file was compared with.
    """

    how: str
    seed: int
    cases: list[CheckedCase] = field(default_factory=list)
    not_run: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    limits: dict[str, dict[str, Any]] = field(default_factory=dict)
    against: str = "the PyTorch module in evaluation mode, its fused inference path off"

    @property
    def worst(self) -> float | None:
        """Largest error on valid rows of all cases; None if no valid row was compared."""
        return max((case.error for case in self.cases if case.error is not None), default=None)

    def certificate(self) -> dict[str, Any]:
        """Return the ``maskport.certificate`` metadata."""
        return {
            "version": METADATA_VERSION,
            "how": self.how,
            "against": self.against,
            "seed": self.seed,
            "cases": [{"name": case.name, "error": case.error} for case in self.cases],
            "limits": self.limits,
            "not_run": [{"name": name, "why": why} for name, why in self.not_run],
            "notes": self.notes,
            "versions": versions(),
        }


def versions() -> dict[str, str]:
    """Return the versions of what made and ran the file."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
