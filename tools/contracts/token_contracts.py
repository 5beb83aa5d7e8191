"""One token after the other is changed, and no row may move that the masks keep it from.

============================  ==========================================================================
padding-invariance            a real row doesn't move with what stands at padding: other tokens, huge ones
padding-nan                   nor with NaN there; told, and not held against a file
causality                     no row moves with a token after it
window                        nor with one beyond what all layers' windows reach together, and with the last in it
segments                      nor with one of another segment
mask                          nor with any that all masks together keep from it
tokens-matter                 and a token that some other row may read moves one
============================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...export.cases.draw import Case, Size
from ...export.cases.layout import Label
from ...export.cases.parity import differences
from ...export.cases.rows import VALID
from ...export.check.backend import BackendError
from ...models.masks import Full
from ..verdict import NOT_RUN, OK, Contract
from . import noise
from .claim import FAMILIES, NOTHING
from .edges import Edges
from .finding import Finding
from .reach import Reach, reach
from .subject import USUAL, Arrays, Subject
from .tokens import Redrawn, moved, redrawn

PADDING, NAN, MATTER = "padding-invariance", "padding-nan", "tokens-matter"
PATTERNS = ("ones", "holes", "left", "right", "no token")
# Padding anywhere, which is on the left and on the right, too.
QUICK = ("holes",)
# What is put at padding beside other tokens: so large that a fill which is too weak shows, and no sum overflows.
HUGE = {"float16": 1e2}
HUGE_ELSE = 1e4
# A longer row is not run.
LONGEST = 2048
BEYOND = 5
# How often a token that moved nothing is changed again.
TRIES = 3


class TokenContracts:
    """What was found of a subject so far."""

    def __init__(self, subject: Subject, patterns: Sequence[str] = PATTERNS) -> None:
        self.subject, self.patterns = subject, patterns
        self.found = {name: Finding(name, _nothing(subject, name)) for name in FAMILIES}
        self.nan = Finding(NAN, "no token is a number with a fraction, or no row is padding")
        self.edges = Edges(subject)
        self.matter = Finding(MATTER, "no token could be changed that another row may read")

    def run(self) -> list[Contract]:
        """Run all cases."""
        for case, before, places in self._cases():
            self._try(case, before, places)
        if (narrow := self.edges.narrow()) is not None:
            self.found["window"].fail(narrow)
        contracts = [finding.contract() for finding in (*self.found.values(), self.matter)]
        return [contracts[0], self._nan(), *contracts[1:]]

    def _cases(self) -> Iterator[tuple[Case, Arrays, range | tuple[int, ...]]]:
        """Yield cases and what they give, each with the places of the tokens that are changed one by one."""
        layout = self.subject.layout
        patterns = self.patterns if layout.masks else ("ones", "holes") if _has_masks(self.subject) else ("ones",)
        for pattern in patterns:
            try:
                usual = self.subject.usual(pattern)
            except BackendError:
                # That it runs at all lengths is another contract.
                continue
            if usual is not None:
                yield *usual, range(max(usual[0].sizes[label] for label in layout.tokens)) if layout.tokens else ()
        far = max(self.edges.reach, default=-1)
        if far + BEYOND > USUAL.length and far + BEYOND <= LONGEST:
            case = self.subject.draw(Size(1, far + BEYOND, 11), "ones")
            if case is None:
                return
            try:
                before = self.subject.run(case.inputs)
            except BackendError:
                return
            last = far + BEYOND - 1
            yield self.subject.told(case, before), before, (0, 1, last // 2, last - 1, last)

    def _try(self, case: Case, before: Arrays, places: range | tuple[int, ...]) -> None:
        subject = self.subject
        if _has_nan(subject, case, before):
            # Nothing can be seen to move it; that it is there is another contract.
            return
        if subject.layout.masks:
            self._padding(case, before)
        reaches = {name: reach(subject, case, before, part) for name, part in FAMILIES.items()}
        known = subject.promised([claim for claim in subject.claims if claim.known])
        reaches[MATTER] = reach(known, case, before, FAMILIES["mask"])
        for label in subject.layout.tokens:
            for place in places:
                if place < case.sizes[label]:
                    self._token(case, before, label, place, reaches)

    def _token(self, case: Case, before: Arrays, label: Label, place: int, reaches: dict[str, Reach]) -> None:
        """Change the token at one place of all rows of a batch."""
        where = np.zeros((case.sizes[self.subject.layout.batch], case.sizes[label]), bool)
        where[:, place] = True
        unseen = np.zeros(len(where), bool)
        for attempt in range(TRIES):
            other = redrawn(self.subject, case, {label: where}, seed=attempt + 1)
            changed = other.changed[label][:, place]
            after = self._after(other, before) if changed.any() else None
            if after is None:
                return
            seen = np.zeros(len(where), bool)
            may = np.zeros(len(where), bool)
            limit = noise.same_shape(before)
            for rows in self.subject.layout.tokens:
                valid = case.rows.real[rows] & case.rows.has_key[rows] & changed[:, None]
                others = valid & ~where if rows == label else valid
                reading = reaches[MATTER][rows, label][..., place]
                may |= (others & reading).any(axis=1)
                for name, apart in moved(self.subject, rows, before, after).items():
                    if rows == label:
                        self.edges.note(apart, valid & reading, place)
                    seen |= (others & (apart > 0)).any(axis=1)
                    for family, finding in self.found.items():
                        kept = valid & ~reaches[family][rows, label][..., place]
                        if kept.any():
                            count, worst = _worst(apart, kept)
                            why = _told(case, label, place, rows, name, apart, kept)
                            finding.note(count, worst, limit, why)
            if attempt == 0:
                # A row of padding is read by nobody.
                unseen = may & case.rows.real[label][:, place]
                self.matter.perturbed += int(unseen.sum())
            unseen &= ~seen
            if not unseen.any():
                return
        row = int(np.flatnonzero(unseen)[0])
        self.matter.fail(f"{TRIES} other tokens at {label} {place} of row {row} move no other row at {case.name}")

    def _after(self, other: Redrawn, before: Arrays) -> Arrays | None:
        """Return what comes of other tokens; None if they change what a mask reads."""
        try:
            after = self.subject.run(other.case.inputs)
        except BackendError:
            return None
        hidden = self.subject.interface.hidden
        return after if all(np.array_equal(before[name], after[name]) for name in hidden) else None

    def _padding(self, case: Case, before: Arrays) -> None:
        """Change all padding at once: it need not be one token that shows."""
        where = {label: ~real for label, real in case.rows.real.items()}
        dtypes = {
            array.dtype.name for name, array in case.inputs.items() if self.subject.layout.inputs[name].role == "tokens"
        }
        huge = min((HUGE.get(dtype, HUGE_ELSE) for dtype in dtypes), default=HUGE_ELSE)
        for fill, finding, what in (
            (None, self.found[PADDING], "other tokens"),
            (huge, self.found[PADDING], f"tokens of {huge:g}"),
            (-huge, self.found[PADDING], f"tokens of {-huge:g}"),
            (np.nan, self.nan, "NaN"),
        ):
            other = redrawn(self.subject, case, where, fill)
            floats = any(before.dtype.kind == "f" for before in case.inputs.values())
            if not any(changed.any() for changed in other.changed.values()) or (fill is not None and not floats):
                continue
            after = self._after(other, before)
            if after is None:
                continue
            for rows in self.subject.layout.tokens:
                for name, apart in moved(self.subject, rows, before, after).items():
                    valid = case.rows.real[rows] & case.rows.has_key[rows]
                    if valid.any():
                        count, worst = _worst(apart, valid)
                        why = f"{what} at padding move {name!r} by {worst:.2g} on valid rows at {case.name}"
                        finding.note(count, worst, noise.same_shape(before), why)

    def _nan(self) -> Contract:
        found = self.nan.contract()
        if found.status == OK or found.status == NOT_RUN:
            return found
        why = "NaN at padding reaches valid rows: 0 x NaN is NaN wherever padding is weighed by 0. Keep padding finite"
        return Contract(NAN, NOT_RUN, why=why)


def _worst(apart: np.ndarray, where: np.ndarray) -> tuple[int, float]:
    return int(where.sum()), float(apart[where].max(initial=0.0))


def _told(case: Case, label: Label, place: int, rows: Label, name: str, apart: np.ndarray, kept: np.ndarray) -> str:
    batch, row = np.unravel_index(int(np.where(kept, apart, -1.0).argmax()), apart.shape)
    real = "" if case.rows.real[label][batch, place] else ", which is padding,"
    return (
        f"another token at {label} {place} of row {batch}{real} moves {name!r} at {rows} {row} by "
        f"{apart[batch, row]:.2g} at {case.name}"
    )


def _nothing(subject: Subject, family: str) -> str:
    """Return why nothing may be perturbed for a family."""
    full = Full()
    asked = [FAMILIES[family](claim.mask) != full for claim in subject.claims]
    if not any(asked):
        return NOTHING[family]
    if not all(asked):
        return "a layer that may attend more passes on what the others keep out: no token is out of reach of a row"
    return "no row was tried that a token is kept from"


def _has_nan(subject: Subject, case: Case, outputs: Arrays) -> bool:
    """Whether a valid row is NaN."""
    found = differences(subject.layout, case, outputs, {name: np.nan_to_num(outputs[name]) for name in outputs})
    return any(difference.nan for difference in found if difference.rows == VALID)


def _has_masks(subject: Subject) -> bool:
    return any(value.role == "mask" for value in subject.layout.inputs.values())
