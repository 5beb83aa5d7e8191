"""Whether windows reach as far as they should: all layers together read the token at the end of their windows."""

from __future__ import annotations

import numpy as np

from .claim import FAMILIES
from .subject import Subject

# By how much the token before the last must move a row, so that the last must move one, too.
PLAIN = 1e-4
# How many rows must have been able to read the last one: padding between them cuts the only way.
ENOUGH = 2


class Edges:
    """How far the last token that windows reach, and the one before it, have moved rows.

    Attributes
    ----------
    reach
        How far all layers reach together to the left and to the right; empty if one has no end on that side, or there
        is more than one token axis.
    """

    def __init__(self, subject: Subject) -> None:
        windows = [FAMILIES["window"](claim.mask).window for claim in subject.claims]
        one_axis = len(subject.layout.tokens) == 1
        sides = [[window[side] for window in windows] for side in (0, 1)]
        closed = one_axis and bool(windows) and min(sides[0]) > 0
        self.reach = tuple(sum(side) for side in sides) if closed and min(sides[1]) >= 0 else ()
        self._moved = {(side, inside): 0.0 for side in (-1, 1) for inside in (0, 1)}
        self._tried = dict.fromkeys((-1, 1), 0)

    def note(self, apart: np.ndarray, may: np.ndarray, place: int) -> None:
        """Put down how far rows [B, S] moved with the token at a place, of those that may read it."""
        for side, far in zip((1, -1), self.reach, strict=False):
            for inside in (0, 1):
                row = place + side * (far - inside)
                if far > 1 and 0 <= row < apart.shape[1]:
                    moved = float(apart[:, row][may[:, row]].max(initial=0.0))
                    self._moved[side, inside] = max(self._moved[side, inside], moved)
                    if not inside:
                        self._tried[side] += int(may[:, row].sum())

    def narrow(self) -> str | None:
        """Return what is wrong if the last token moves nothing, where the one before it does plainly."""
        for side, far in zip((1, -1), self.reach, strict=False):
            if self._tried[side] >= ENOUGH and self._moved[side, 1] > PLAIN and self._moved[side, 0] == 0:
                where = "before" if side > 0 else "after"
                return f"no row moves with the token {far} places {where} it, where the windows of all layers end"
        return None
