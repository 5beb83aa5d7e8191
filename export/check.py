"""The check before export returns: the file against the module, at sizes and masks that are not the example's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .backend import BackendError
from .batch import check_batch
from .cases import SIZES, Case, Size, draw_cases, sizes_of
from .checked import Checked, CheckedCase
from .compare_case import compare_case
from .eager import RefusedError
from .effects import check_effects
from .errors import ExportError
from .lengths import extra_sizes
from .messages import joined
from .pad_safe import pad_safety, unknown_pad_safety
from .parity import Difference, tolerance_of, worst_valid
from .patterns import NAMES
from .relations import related
from .rows import VALID, rows_of
from .subject import Subject

# Where the effect of an input is looked for: long enough that the middle of a row can be hidden.
TYPICAL = Size(3, 17, 11)
# The reference goes through the graph in Python, node by node.
LARGEST_FOR_REFERENCE = 51


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
    layout, examples, masks = subject.layout, subject.examples, subject.masks
    checked = Checked(subject.backend.how, subject.seed)
    if not subject.backend.is_onnxruntime and (why := _fails(subject)):
        checked.how = "nothing"
        checked.not_run.append(
            ("everything", f"ONNX Runtime has no bfloat16 on the CPU, and the reference fails: {why}")
        )
        return checked, unknown_pad_safety("the file could not be run here")
    sizes = subject.example_sizes
    own = Case("the example", sizes, "example", examples, rows_of(layout, sizes, examples, masks))
    extra, too_long = extra_sizes(subject, bounds)
    checked.not_run += too_long
    drawn = list(draw_cases(layout, examples, masks, SIZES, NAMES, subject.seed))
    cases = [own, *(case for case in drawn if case.pattern == NAMES[0]), *(subject.draw(one) for one in extra)]
    by_size = len(cases)
    cases += [case for case in drawn if case.pattern != NAMES[0]]

    ran: list[Case] = []
    apart: dict[tuple[str, str], tuple[Case, Difference]] = {}
    for index, case in enumerate(cases):
        if index == by_size:
            _check_every_axis_varied(subject, checked, ran)
            # A lost mask is told as such, before its wrong values are.
            check_effects(subject, _typical(subject, ran), unused, checked)
        if not subject.backend.is_onnxruntime and _tokens(subject, case) > LARGEST_FOR_REFERENCE:
            checked.not_run.append((case.name, f"too large for {checked.how}"))
            continue
        try:
            found = compare_case(subject, case)
        except RefusedError as error:
            if case is own:
                raise ExportError(f"{subject.name}: the module itself fails on the example inputs: {error}") from error
            checked.not_run.append((case.name, f"the module itself can't: {error}"))
            continue
        ran.append(case)
        checked.cases.append(CheckedCase(case.name, worst_valid(found)))
        for difference in found:
            if not difference.ok:
                apart.setdefault((difference.output, difference.rows), (case, difference))
    if len(cases) == by_size:
        _check_every_axis_varied(subject, checked, ran)
        check_effects(subject, _typical(subject, ran), unused, checked)
    if not subject.backend.is_onnxruntime:
        checked.notes.append(f"ONNX Runtime has no bfloat16 on the CPU; {checked.how} ran the file instead")
    checked.notes += [_told(case, difference) for case, difference in apart.values()]
    checked.limits = _limits(subject)
    wide = [case for case in ran if case.sizes.get(layout.batch, 1) > 1 and _tokens(subject, case) > 2]
    for case in wide[-2:] if not mixes_rows else ():
        check_batch(subject, case, checked)
    return checked, pad_safety(subject, wide[-4:] if layout.tokens else [])


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


def _typical(subject: Subject, ran: Sequence[Case]) -> Case:
    """Return the case that effects are looked for in: of the typical size if that ran, else the largest that did."""
    wanted = sizes_of(subject.layout, TYPICAL)
    return next((case for case in ran if case.sizes == wanted), max(ran, key=lambda case: _tokens(subject, case)))


def _check_every_axis_varied(subject: Subject, checked: Checked, ran: Sequence[Case]) -> None:
    """Refuse to vouch for a free axis that was run at the example's size alone."""
    for axis in subject.layout.free:
        if all(case.sizes[axis] == subject.example_sizes[axis] for case in ran):
            raise ExportError(
                joined(
                    f"{subject.name}: nothing could be checked at another size of {axis!r} than the example's",
                    *dict.fromkeys(f"at {name}: {why}" for name, why in checked.not_run[:3]),
                    "Leave the axis out of dynamic_shapes if the module takes one size only, or export with "
                    "check=False and check the file yourself",
                )
            )


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
