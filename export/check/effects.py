"""Whether every declared input still has an effect: a lost mask is the most harmful fault of all."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from ..cases.draw import Case
from ..cases.rows import VALID
from ..errors import ExportError
from . import messages
from .backend import BackendError
from .checked import Checked
from .eager import RefusedError
from .messages import joined
from .perturb import changes
from .subject import Subject

Outputs = Mapping[str, np.ndarray]


def check_effects(subject: Subject, case: Case, unused: Collection[str], checked: Checked) -> None:
    """Change one input after the other, in several ways, until an output of the model moves.

    Raises
    ------
    ExportError
        If no change of an input moves the model's outputs though the module's move; if no change of a mask moves
        either; if nothing in the file reads an input.
    """
    if unknown := [name for name in unused if name not in subject.layout.inputs]:
        raise ExportError(f"unused has {unknown[0]!r}; the inputs are {', '.join(subject.layout.inputs)}")
    for name in subject.layout.inputs:
        if name not in unused:
            _check_effect(subject, case, name, checked)


def _check_effect(subject: Subject, case: Case, name: str, checked: Checked) -> None:
    theirs, ours = subject.eager(case.inputs), subject.backend.run(case.inputs)
    tried = []
    module_moves = ""
    for changed in changes(subject.layout, subject.examples, subject.masks, case, name, subject.seed):
        try:
            after = subject.eager(changed.inputs)
        except RefusedError:
            continue
        tried.append(changed)
        moved = _moved(subject, changed, theirs, after)
        try:
            moved_here = _moved(subject, changed, ours, subject.backend.run(changed.inputs))
        except BackendError:
            return  # It has an effect; the comparison of values says which.
        if moved_here and (VALID in moved_here or VALID not in moved):
            return
        if moved:
            module_moves = f"another value of it moves {'valid' if VALID in moved else 'padding'} rows in PyTorch"
    is_read = any(value.name == name and _has_uses(subject, name) for value in subject.model.graph.inputs)
    if module_moves:
        reads = "the file reads it, but nothing moves" if is_read else "no node of the file reads it"
        raise ExportError(
            joined(
                f"{subject.name}: the input {name!r} has no effect in the exported file",
                f"{module_moves}; {reads}",
                messages.DROPPED,
            )
        )
    if not is_read or (tried and subject.layout.inputs[name].role in ("mask", "packing")):
        raise ExportError(
            joined(
                f"{subject.name}: the input {name!r} has no effect, in the module neither",
                f"{len(tried)} other values of it changed no output",
                messages.UNREAD,
            )
        )
    if tried:
        checked.notes.append(f"only the shape of {name!r} matters: {len(tried)} other values of it changed no output")
    else:
        checked.not_run.append((f"effect of {name}", "the module takes no other value of it"))


def _has_uses(subject: Subject, name: str) -> bool:
    value = next(value for value in subject.model.graph.inputs if value.name == name)
    return bool(value.uses()) or value in subject.model.graph.outputs


def _moved(subject: Subject, case: Case, before: Outputs, after: Outputs) -> set[str]:
    """Return what differs between two sets of outputs: ``valid`` rows, or ``other`` rows."""
    moved = set()
    for name, axes in subject.layout.outputs.items():
        one, two = before[name], after[name]
        if one.shape != two.shape:
            return {VALID}
        differ = (one != two) & ~((one != one) & (two != two))
        kinds = case.rows.kinds(subject.layout, axes, two.shape)
        valid = np.broadcast_to(kinds[VALID], two.shape) if kinds is not None else np.ones(two.shape, bool)
        if differ[valid].any():
            moved.add(VALID)
        if differ[~valid].any():
            moved.add("other")
    return moved
