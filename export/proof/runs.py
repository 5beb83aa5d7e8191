"""The cases of a proof: each is run on all sides, compared, and put down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...models.masks import Mask
from ..cases.draw import Case
from ..cases.layout import Label, Layout
from ..cases.rows import VALID
from ..certificate.drawn_case import DrawnCase
from ..certificate.drawn_from import DrawnFrom
from ..check.backend import BackendError
from ..check.checked import Checked, CheckedCase
from ..errors import ProofFailed
from .candidate import Candidate
from .compare import Apart, Arrays, compare, is_pooled, rows_apart, with_rows
from .granted import Assumes, in_words, is_granted
from .interface import Interface
from .pooled import Pooled, without_rows
from .side import Side

AGAINST = "the source file, its graph as it is written"
# Real tokens that a mask of integers marks with other numbers than 1.
OTHER_NUMBERS = (1, 2)
MARKED = "marked by 1 and 2"


class Runs:
    """The cases so far. The last candidate is the result."""

    def __init__(
        self,
        interface: Interface,
        reference: Side,
        candidates: Sequence[Candidate],
        masks: Sequence[Mask],
        assumes: Assumes,
        padding_rows: str,
        seed: int,
    ) -> None:
        self.interface, self.reference, self.candidates = interface, reference, candidates
        self.masks, self.assumes, self.padding_rows = masks, assumes, padding_rows
        self.pooled = Pooled(interface, reference, seed)
        drawn_from = DrawnFrom(
            interface.layout, interface.examples, tuple(dict.fromkeys(masks)), interface.hidden, interface.lone
        )
        self.record = Checked(candidates[-1].side.how, seed, against=AGAINST, drawn_from=drawn_from)
        self.worst: dict[str, float] = {}
        self.seen: set[tuple[Any, ...]] = set()
        self.compared: set[str] = set()
        self.left_open: set[str] = set()
        self.dtypes: set[str] = set()

    def draw(self, sizes: Mapping[Label, int], pattern: str) -> Case:
        """Draw a case, of numbers that the result takes without rounding them."""
        case = self.interface.draw(sizes, pattern, self.record.seed)
        return replace(case, inputs=self.candidates[-1].rounded(case.inputs))

    def takes(self, case: Case) -> bool:
        """Whether the source can be run at a case's sizes; where it fails at any batch, whether the result can."""
        try:
            self.reference.run(case.inputs)
            if self._is_beyond(case):
                for candidate in self.candidates:
                    candidate.run(case.inputs, case.name)
        except (BackendError, ProofFailed):
            return False
        return True

    def _is_beyond(self, case: Case) -> bool:
        """Whether the source itself fails at the case's batch, so that the result may, too."""
        return self.interface.lone and case.sizes.get(self.interface.layout.batch, 1) > 1

    def compare(self, case: Case, pattern: str) -> None:
        """Run both sides on a case, if it keeps to what is granted and is not another's equal.

        Raises
        ------
        ProofFailed
            If they differ.
        """
        layout = self.interface.layout
        key = (*case.sizes.items(), *(array.tobytes() for name, array in case.inputs.items() if _masks(layout, name)))
        if key in self.seen or not is_granted(case, layout, self.assumes):
            return
        self.seen.add(key)
        case = named(case, layout, pattern)
        try:
            expected = self.reference.run(case.inputs)
        except BackendError as error:
            reason = str(error).rpartition("Status Message: ")[2]
            self.record.not_run.append((case.name, f"the source itself can't: {reason}"))
            return
        if self._is_beyond(case) and not self.takes(case):
            self.record.not_run.append((case.name, "source and result fail at any batch above 1"))
            return
        case = with_rows(case, self.interface, self.masks, expected)
        for candidate in self.candidates:
            actual = candidate.run(case.inputs, case.name)
            found, partly = self.apart(candidate, case, actual, expected)
            self.left_open |= partly
            if wrong := next((apart for apart in found if apart.why is not None), None):
                raise ProofFailed(candidate.when + _told(case, wrong))
            valid = [apart for apart in found if apart.rows == VALID]
            largest = max((apart.error for apart in valid), default=None)
            self.worst[candidate.when] = max(self.worst.get(candidate.when, 0.0), largest or 0.0)
        # Of the result, which comes last.
        self.compared |= {apart.output for apart in valid}
        self.dtypes |= {actual[name].dtype.name for name in layout.outputs}
        types = {name: actual[name].dtype for name in layout.outputs}
        drawn = DrawnCase.of(layout, case, expected, types, len(self.record.cases), partly)
        self.record.cases.append(CheckedCase(case.name, largest, drawn))

    def compare_other_numbers(self, case: Case) -> None:
        """Compare a case whose masks of integers mark real tokens with other numbers than 1, too."""
        self.compare(marked(case, self.interface.layout, self.record.seed), case.pattern)

    def note_effects(self, case: Case) -> None:
        """Note the masks that change no valid row of the source when they hide nothing: a loss would not be seen."""
        layout = self.interface.layout
        for name in layout.masks:
            value = layout.inputs[name]
            if value.role != "mask":
                continue
            shown = np.full_like(case.inputs[name], int(value.pad == 0))
            try:
                before, after = (self.reference.run({**case.inputs, name: mask}) for mask in (case.inputs[name], shown))
            except BackendError:
                continue
            found = compare(layout, with_rows(case, self.interface, self.masks, before), after, before, "keep")
            if all(apart.why is None for apart in found if apart.rows == VALID):
                self.record.notes.append(
                    f"nothing that was tried shows an effect of {name!r}, so its loss would not be seen"
                )

    def apart(self, candidate: Candidate, case: Case, actual: Arrays, expected: Arrays) -> tuple[list[Apart], set[str]]:
        """Compare a case; rows of outputs that read padding in the source count only where padding is kept.

        Returns
        -------
        list of Apart
            What was found.
        set of str
            The outputs of which not all rows count.
        """
        layout, partly = self.interface.layout, set()
        found = compare(layout, case, actual, expected, self.padding_rows, candidate.tolerance)
        for apart in [apart for apart in found if apart.why is not None and apart.rows == VALID]:
            name = apart.output
            if self.padding_rows == "keep" or not is_pooled(layout, name) or actual[name].shape != expected[name].shape:
                continue
            reads = self.pooled.reads_padding(name, case)
            limit = apart.limit if np.isfinite(apart.limit) else 0.0
            kept = rows_apart(layout, case, name, actual[name], expected[name], limit) & ~reads
            if reads.any() and not kept.any():
                alone = replace(layout, outputs={name: layout.outputs[name]})
                fewer = without_rows(case, reads)
                again = compare(alone, fewer, actual, expected, self.padding_rows, candidate.tolerance)
                found = [other for other in found if other.output != name] + again
                partly.add(name)
        return found, partly

    def finish(self) -> Checked:
        """Return what was found.

        Raises
        ------
        ProofFailed
            If no valid row was compared.
        """
        record, layout = self.record, self.interface.layout
        if record.worst is None:
            reasons = "; ".join(dict.fromkeys(why for _, why in record.not_run))
            raise ProofFailed(f"no valid row of source and result could be compared: {reasons}")
        record.notes += [f"inputs were such that {in_words(entry)}" for entry in self.assumes]
        record.notes += [
            f"rows of {name!r} that read padding in the source, whatever it is padded with, were not compared"
            for name in sorted(self.left_open)
        ]
        record.notes += [f"{name!r} was not compared: its rows can't be told apart" for name in layout.outputs
                         if name not in self.compared]  # fmt: skip
        result = self.candidates[-1]
        for candidate in self.candidates[:-1]:
            record.notes.append(f"{candidate.when}it differed by {self.worst[candidate.when]:.1e} at most")
        sides = (self.reference, *(candidate.side for candidate in self.candidates))
        record.notes += dict.fromkeys(f"twins: {said}" for side in sides for said in side.warned)
        names = dict.fromkeys([*sorted(self.dtypes), *([result.dtype] if result.dtype else [])])
        limits = {name: result.tolerances[name] for name in names if name in result.tolerances}
        record.limits = {name: {"per_unit": limit.value, "why": limit.why} for name, limit in limits.items()}
        return record


def named(case: Case, layout: Layout, pattern: str) -> Case:
    """Return a case whose name tells its pattern if the model has any mask."""
    if "mask=" in case.name or all(value.role != "mask" for value in layout.inputs.values()):
        return case
    return replace(case, name=f"{case.name},mask={pattern}")


def marked(case: Case, layout: Layout, seed: int) -> Case:
    """Return a case whose masks of integers mark real tokens with other numbers than 1, too."""
    inputs = dict(case.inputs)
    rng = np.random.default_rng([seed, 2])
    for name in layout.masks:
        value, array = layout.inputs[name], inputs[name]
        if value.role == "mask" and value.pad == 0 and array.dtype.kind in "iu":
            inputs[name] = (array != 0) * rng.choice(OTHER_NUMBERS, array.shape).astype(array.dtype)
    return replace(case, name=f"{case.name},{MARKED}", inputs=inputs)


def _masks(layout: Layout, name: str) -> bool:
    return name in layout.masks or layout.inputs[name].role == "mask"


def _told(case: Case, apart: Apart) -> str:
    rows = {"valid": "valid rows", "padding": "padding rows", "empty": "rows without a key"}[apart.rows]
    figures = f" by {apart.error:.2g} (allowed: {apart.limit:.2g})" if np.isfinite(apart.limit) else ""
    return f"at {case.name} {apart.output!r} {apart.why}{figures} on {rows}"
