"""What `optimize` made, and how it tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

    from .proof.record import Proof
    from .tuning.answer import Answer

__all__ = ["Optimized", "OptimizedSite"]


@dataclass(frozen=True)
class OptimizedSite:
    """One attention and what became of it.

    Attributes
    ----------
    name, mask : str
        Its name and its mask, as the source has them.
    source_form : str
        What the source had: "decomposed" or an operator.
    kernel : str
        What computes it now.
    why : str
        How the mask is told, and why this kernel.
    refused : dict of str to list of str
        All reasons against each kernel that would have been better.
    """

    name: str
    mask: str
    source_form: str
    kernel: str
    why: str
    refused: dict[str, list[str]]

    def to_json(self) -> dict[str, Any]:
        """Return the site as `maskport optimize --json` prints it."""
        return {**vars(self), "refused": self.refused or None}


@dataclass(frozen=True)
class Optimized:
    """What :func:`optimize` made.

    Attributes
    ----------
    path : Path or None
        Where it was written.
    model : onnx_ir.Model
        The result.
    target, dtype, padding_rows : str
        What was asked for.
    sites : tuple of OptimizedSite
        In the graph's order.
    passes : tuple of (str, int)
        What was done, and how much of it.
    assumes : tuple of dict
        What the file takes for granted: input, check, axis and source.
    checked : str
        "cpu", "twin", or "not run".
    proof : Proof or None
        What was run and compared.
    changed : bool
        False if the result is the source.
    notes : tuple of str
        What was left as it was, and why.
    measured : tuple of Answer
        What was measured to choose, if that was asked for.
    """

    path: Path | None
    model: ir.Model
    target: str
    dtype: str | None
    padding_rows: str
    sites: tuple[OptimizedSite, ...]
    passes: tuple[tuple[str, int], ...]
    assumes: tuple[dict[str, Any], ...]
    checked: str
    proof: Proof | None
    changed: bool
    notes: tuple[str, ...] = ()
    measured: tuple[Answer, ...] = ()

    @classmethod
    def unchanged(
        cls, source: ir.Model, target: str, padding_rows: str, sites: Sequence[OptimizedSite], notes: Sequence[str]
    ) -> Optimized:
        """Return the source as it is, and why."""
        return cls(None, source, target, None, padding_rows, tuple(sites), (), (), "not run", None, False, tuple(notes))

    def at(self, path: Path | None) -> Optimized:
        """Return the same, written to a path."""
        return replace(self, path=path)

    def to_json(self) -> dict[str, Any]:
        """Return the result as `maskport optimize --json` prints it."""
        return {
            "format": 1,
            "target": self.target,
            "dtype": self.dtype,
            "padding_rows": self.padding_rows,
            "changed": self.changed,
            "assumes": list(self.assumes),
            "checked": self.checked,
            "largest_difference": None if self.proof is None else self.proof.worst,
            "sites": [site.to_json() for site in self.sites],
            "passes": [{"name": name, "changed": number} for name, number in self.passes],
            "notes": list(self.notes),
            "measured": [answer.to_json() for answer in self.measured],
        }
