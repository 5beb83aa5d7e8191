"""What was measured, and what was fastest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Answer", "Seconds"]

# By shape ("16x128"), of each candidate.
Seconds = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Answer:
    """What was measured.

    Attributes
    ----------
    what : str
        An attention, with its mask, or "packing".
    sites : tuple of str
        The names of the attention that it decides.
    seconds : dict
        By shape ("16x128"), of each candidate; of an attention, those of a few layers.
    fastest : str
        What is fastest over all shapes, or as fast as that and preferred.
    from_cache : bool
        Whether it was measured in another run.
    """

    what: str
    sites: tuple[str, ...]
    seconds: Seconds
    fastest: str
    from_cache: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as `maskport optimize --json` prints it."""
        return {**vars(self), "sites": list(self.sites)}
