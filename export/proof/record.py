"""What a proof has run and found, for people and for the file's metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..check.checked import Checked


@dataclass(frozen=True)
class Proof:
    """Source and result were run on the same inputs, and agree where they must.

    Attributes
    ----------
    checked : str
        ``cpu``: ONNX Runtime ran the result; ``twin``: executable twins stood in for operators that the CPU lacks.
    padding_rows : str
        By which rule padding rows were compared: "any", "zero" or "keep".
    record : Checked
        Cases, largest differences, limits, what was not run, and notes.
    """

    checked: str
    padding_rows: str
    record: Checked

    @property
    def worst(self) -> float | None:
        """Largest difference on valid rows; None if no valid row was compared."""
        return self.record.worst

    @property
    def notes(self) -> tuple[str, ...]:
        """What is right but worth knowing."""
        return tuple(self.record.notes)

    def certificate(self) -> dict[str, Any]:
        """Return the ``maskport.certificate`` metadata: of the same form as that of an export."""
        return {**self.record.certificate(), "checked": self.checked, "padding_rows": self.padding_rows}
