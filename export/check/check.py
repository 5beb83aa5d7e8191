"""The check before export returns: the file against the module, at sizes and masks that are not the example's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..cases.draw import SIZES, Case, Size, draw_cases, sizes_of
from ..cases.parity import Difference, tolerance_of, worst_valid
from ..cases.patterns import NAMES
from ..cases.rows import VALID, rows_of
from ..certificate.drawn_case import DrawnCase
from ..errors import ExportError
from .backend import BackendError
from .batch import check_batch
from .checked import Checked, CheckedCase
from .compare_case import compare_case
from .eager import RefusedError
from .effects import check_effects
from .lengths import extra_sizes
from .messages import joined
from .pad_safe import pad_safety, unknown_pad_safety
from .relations import related
from .subject import Subject

# Where the effect of an input is looked for: long enough that the middle of a row can be hidden.
TYPICAL = Size(3, 17, 11)
# The reference goes through the graph in Python, node by node.
LARGEST_FOR_REFERENCE = 51
# Patterns in which a row is compared with itself alone.
FOR_ROWS = ("example", "ones", "holes")
NO_BFLOAT16 = "ONNX Runtime has no bfloat16 on the CPU"


def check(
    subject: Subject,
    bounds: Mapping[str, tuple[int, int | None]],
    unused: Collection[str] = (),
    mixes_rows: bool = False,
) -> tuple[Checked, dict[str, Any]]:
    """Run the model and the module on the same inputs: sizes first, then inputs' effects, then masks.

    Parameters
    ----------
    subject
        The two, and what cases are drawn from.
    bounds
        Least and largest size of free axes that the exporter took for granted.
    unused
        Inputs that may have no effect.
    mixes_rows
        Whether the rows of a batch may depend on each other.

    Returns
    -------
    Checked
        What was found.
    dict
        The ``maskport.pad_safe`` metadata.

    Raises
    ------
    ExportError
        If the file is not the module: a baked dimension, an input without effect, a wrong value, rank or element
        type, NaN of its own, rows that depend on the others of their batch.
    """
    subject = related(subject)
    layout, masks, drawn_from = subject.layout, subject.masks, subject.drawn_from
    checked = Checked(subject.backend.how, subject.seed, drawn_from=drawn_from)
    if not subject.backend.is_onnxruntime and (why := _fails(subject)):
        checked.how = "nothing"
        checked.not_run.append(("everything", f"{NO_BFLOAT16}, and the reference fails: {why}"))
        checked.notes.append(f"the file was not run: {NO_BFLOAT16}, and the reference fails: {why}")
        return checked, unknown_pad_safety("the file could not be run here")
    extra, too_long = extra_sizes(subject, bounds)
    checked.not_run += too_long
    drawn = list(draw_cases(layout, drawn_from.examples, masks, SIZES, NAMES, subject.seed))
    runs = _Runs(subject, checked)

    runs.compare_example()
    runs.compare([case for case in drawn if case.pattern == NAMES[0]])
    runs.compare([subject.draw(sizes) for sizes in extra])
    runs.check_every_axis_varied()
    # A lost mask is told as such, before its wrong values are.
    check_effects(subject, runs.typical(), unused, checked)
    runs.compare([case for case in drawn if case.pattern != NAMES[0]])
    runs.compare([subject.draw(sizes, "holes") for sizes in extra if layout.masks])

    if not subject.backend.is_onnxruntime:
        checked.notes.append(f"{NO_BFLOAT16}; {checked.how} ran the file instead")
    checked.notes += runs.notes()
    checked.limits = _limits(subject)
    typical = [case for case in runs.ran if case.sizes == runs.typical().sizes]
    if not mixes_rows and layout.batch is not None:
        for case in [case for case in typical if case.pattern in FOR_ROWS]:
            check_batch(subject, case, checked)
    return checked, pad_safety(subject, typical if layout.tokens else [])


class _Runs:
    """The cases that ran, and what differs where it may."""

    def __init__(self, subject: Subject, checked: Checked) -> None:
        self.subject, self.checked = subject, checked
        self.ran: list[Case] = []
        self.apart: dict[tuple[str, str], tuple[Case, Difference]] = {}

    def compare_example(self) -> None:
        """Compare the example, which the module must be able to run."""
        subject, sizes = self.subject, self.subject.example_sizes
        rows = rows_of(subject.layout, sizes, subject.examples, subject.masks)
        own = Case("the example", sizes, "example", subject.examples, rows)
        try:
            self._compare(own)
        except RefusedError as error:
            raise ExportError(f"{subject.name}: the module itself fails on the example inputs: {error}") from error

    def compare(self, cases: Sequence[Case]) -> None:
        """Compare cases; those that can't be run are put down with the reason."""
        for case in cases:
            if not self.subject.backend.is_onnxruntime and _tokens(self.subject, case) > LARGEST_FOR_REFERENCE:
                self.checked.not_run.append((case.name, f"too large for {self.checked.how}"))
                continue
            try:
                self._compare(case)
            except RefusedError as error:
                self.checked.not_run.append((case.name, f"the module itself can't: {error}"))

    def _compare(self, case: Case) -> None:
        found, expected = compare_case(self.subject, case)
        # The two were of the same types.
        types = {name: array.dtype for name, array in expected.items()}
        drawn = DrawnCase.of(self.subject.layout, case, expected, types, len(self.ran))
        self.ran.append(case)
        self.checked.cases.append(CheckedCase(case.name, worst_valid(found), drawn))
        for difference in found:
            if not difference.ok:
                self.apart.setdefault((difference.output, difference.rows), (case, difference))

    def typical(self) -> Case:
        """Return the case that effects are looked for in: of the typical size if that ran, else the largest."""
        wanted = sizes_of(self.subject.layout, TYPICAL)
        largest = max(self.ran, key=lambda case: _tokens(self.subject, case))
        return next((case for case in self.ran if case.sizes == wanted), largest)

    def check_every_axis_varied(self) -> None:
        """Refuse to vouch for a free axis that was run at the example's size alone."""
        subject = self.subject
        for axis in subject.layout.free:
            if all(case.sizes[axis] == subject.example_sizes[axis] for case in self.ran):
                raise ExportError(
                    joined(
                        f"{subject.name}: nothing could be checked at another size of {axis!r} than the example's",
                        *(f"at {name}: {why}" for name, why in self.checked.not_run[:3]),
                        "Leave the axis out of dynamic_shapes if the module takes one size only, or export with "
                        "check=False and check the file yourself",
                    )
                )

    def notes(self) -> list[str]:
        """Tell what differs where it may."""
        return [_told(case, difference) for case, difference in self.apart.values()]


def _fails(subject: Subject) -> str:
    """Return why the backend can't run the example; empty if it can."""
    try:
        subject.backend.run(subject.examples)
    except BackendError as error:
        return str(error)
    return ""


def _tokens(subject: Subject, case: Case) -> int:
    labels = [subject.layout.batch, *subject.layout.tokens[:1]]
    return int(np.prod([case.sizes.get(label, 1) for label in labels]))


def _told(case: Case, difference: Difference) -> str:
    rows = {"valid": "valid rows", "padding": "padding rows", "empty": "rows without a key"}[difference.rows]
    where = f"{rows} of {difference.output!r} at {case.name}"
    if difference.rows == VALID:
        return f"{where}: the module itself gives NaN"
    if difference.nan:
        return f"{where}: the file gives NaN, PyTorch doesn't; no valid row read them in the cases that ran"
    if difference.lost_nan:
        return f"{where}: PyTorch gives NaN, the file doesn't"
    return f"{where}: file and PyTorch differ by {difference.error:.2g}; no valid row read them in the cases that ran"


def _limits(subject: Subject) -> dict[str, dict[str, Any]]:
    outputs = subject.eager(subject.examples).values()
    dtypes = {str(value.dtype): tolerance_of(value.dtype) for value in outputs}
    return {name: {"per_unit": tolerance.value, "why": tolerance.why} for name, tolerance in dtypes.items()}
