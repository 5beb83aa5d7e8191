"""What the check before export returns has found, for the caller and for the file."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..certificate.drawn_case import DrawnCase
    from ..certificate.drawn_from import DrawnFrom

CERTIFICATE_KEY = "maskport.certificate"
PAD_SAFE_KEY = "maskport.pad_safe"
ASSUMES_KEY = "maskport.assumes"
METADATA_VERSION = 1
PACKAGES = ("maskport", "torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "numpy")


@dataclass(frozen=True)
class CheckedCase:
    """One case that was run on both sides.

    Attributes
    ----------
    name, error
        Its name, and the largest error on valid rows (None: it has none).
    drawn
        How to draw it again, and what came out.
    """

    name: str
    error: float | None
    drawn: DrawnCase | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the case as it stands in the certificate."""
        return {"name": self.name, "error": self.error} | ({} if self.drawn is None else self.drawn.to_json())


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
    drawn_from
        What the cases were drawn from.
    """

    how: str
    seed: int
    cases: list[CheckedCase] = field(default_factory=list)
    not_run: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    limits: dict[str, dict[str, Any]] = field(default_factory=dict)
    against: str = "the PyTorch module in evaluation mode, its fused inference path off"
    drawn_from: DrawnFrom | None = None

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
            "drawn_from": None if self.drawn_from is None else self.drawn_from.to_json(),
            "cases": [case.to_json() for case in self.cases],
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
