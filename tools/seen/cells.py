"""What was seen of a file's attention, cell by cell beside what was expected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...models.masks import Mask

NOT, AGREES, EXTRA, MISSING, FAINT, UNKNOWN = range(6)


@dataclass(frozen=True)
class Panel:
    """One row of a batch: the model's rows down, tokens across.

    Attributes
    ----------
    title
        Where its padding is.
    cells
        int [R, T]. ``NOT``: must not be attended, and is not. ``AGREES``: may be attended, and is. ``EXTRA``: is
        attended, and must not be. ``MISSING``: must be attended, and is not. ``FAINT``: must be attended, and what
        else is moves rows by so little that nothing may be seen of it. ``UNKNOWN``: not compared, for the row is
        padding or has no key, or the token could not be changed.
    real_rows, real_tokens
        bool [R], [T]; false is padding.
    """

    title: str
    cells: np.ndarray
    real_rows: np.ndarray
    real_tokens: np.ndarray


@dataclass(frozen=True)
class Seen:
    """What was seen of the model as a whole, or of attentions that are alike.

    Attributes
    ----------
    names
        Of the attentions; empty for the model as a whole.
    mask
        What was expected of each attention; None for the model as a whole.
    rows, tokens
        Names of the axes.
    panels
        Some rows of batches.
    """

    names: tuple[str, ...]
    mask: Mask | None
    rows: str
    tokens: str
    panels: tuple[Panel, ...]

    def count(self, kind: int) -> int:
        """Return how many cells are of a kind."""
        return sum(int((panel.cells == kind).sum()) for panel in self.panels)

    @property
    def ok(self) -> bool:
        """Whether nothing is attended that must not be, and nothing is missing."""
        return not self.count(EXTRA) and not self.count(MISSING)


@dataclass(frozen=True)
class SeenAttention:
    """What was seen of a file.

    Attributes
    ----------
    expected
        Where that which was expected is from, in words; empty if nothing was seen.
    seen
        The model as a whole, then its attentions.
    notes
        What could not be seen, and why.
    """

    expected: str
    seen: tuple[Seen, ...] = ()
    notes: tuple[str, ...] = ()
