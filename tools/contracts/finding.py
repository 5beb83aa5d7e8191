"""What a contract has found so far."""

from __future__ import annotations

from dataclasses import dataclass

from ..verdict import FAILED, NOT_RUN, OK, Contract


@dataclass
class Finding:
    """How much was perturbed for a contract, and how far anything moved that must not, up to the first time it did.

    A contract for which nothing was perturbed is not run; `nothing` says why that may be.
    """

    name: str
    nothing: str
    perturbed: int = 0
    worst: float = 0.0
    why: str | None = None

    def note(self, perturbed: int, worst: float, limit: float, why: str) -> None:
        """Put down one perturbation; `why` tells it, should it be over the limit."""
        self.perturbed += perturbed
        if not perturbed or self.why is not None:
            return
        self.worst = max(self.worst, worst)
        if worst > limit:
            self.why = why

    def fail(self, why: str) -> None:
        """Put down a failure that has no figure."""
        self.perturbed += 1
        self.why = self.why or why

    def contract(self) -> Contract:
        """Return what was found."""
        if self.why is not None:
            return Contract(self.name, FAILED, self.worst, self.why)
        if not self.perturbed:
            return Contract(self.name, NOT_RUN, why=self.nothing)
        return Contract(self.name, OK, self.worst)
