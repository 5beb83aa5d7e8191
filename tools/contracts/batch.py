"""Rows of a batch don't read each other, and a row alone, without its padding, is what it is in the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...export.cases.draw import Case
from ...export.cases.layout import Label
from ...export.check.backend import BackendError
from ..verdict import Contract
from . import noise
from .finding import Finding
from .subject import Arrays, Subject
from .tokens import difference, redrawn

PATTERNS = ("ones", "right", "left")


def batch_invariance(subject: Subject, patterns: Sequence[str] = PATTERNS) -> Contract:
    """Change one row and look at the others; run each row alone, without its padding if that is on the right."""
    layout = subject.layout
    free = isinstance(layout.batch, str)
    nothing = "it takes no batch of 2" if free else "no input has a batch axis that is free"
    finding = Finding("batch-invariance", nothing)
    if not free or subject.batch < 2:
        return finding.contract()
    for pattern in patterns if layout.masks else ("ones",):
        try:
            usual = subject.usual(pattern)
            if usual is None:
                continue
            case, together = usual
            for row in range(subject.batch):
                _others(subject, case, together, row, finding)
                _alone(subject, case, together, row, finding, _real_lengths(case, row) if pattern == "right" else {})
        except BackendError as error:
            finding.fail(f"a row can't be run alone, or no batch with the padding `{pattern}`: {error}")
    return finding.contract()


def _real_lengths(case: Case, row: int) -> dict[Label, int]:
    return {label: int(real[row].sum()) for label, real in case.rows.real.items()}


def _others(subject: Subject, case: Case, together: Arrays, row: int, finding: Finding) -> None:
    where = {label: np.arange(len(real))[:, None] == row for label, real in case.rows.real.items()}
    places = {label: np.broadcast_to(at, case.rows.real[label].shape) for label, at in where.items()}
    other = redrawn(subject, case, places)
    if not any(changed.any() for changed in other.changed.values()):
        return
    after = subject.run(other.case.inputs)
    limit = noise.same_shape(together)
    for name, axes in subject.layout.outputs.items():
        if axes.count(subject.layout.batch) != 1:
            continue
        apart = np.moveaxis(difference(together[name], after[name]), axes.index(subject.layout.batch), 0)
        kept = np.delete(apart, row, axis=0)
        valid = np.delete(_valid(subject, case, name, together[name]), row, axis=0)
        worst = float(kept[valid].max(initial=0.0))
        why = f"other tokens in row {row} move {name!r} by {worst:.2g} in another row of the batch at {case.name}"
        finding.note(int(valid.sum()), worst, limit, why)


def _alone(
    subject: Subject, case: Case, together: Arrays, row: int, finding: Finding, lengths: dict[Label, int]
) -> None:
    """Compare a row of a batch with the same row alone, cut to `lengths`."""
    layout = subject.layout
    inputs = {}
    for name, value in layout.inputs.items():
        array = case.inputs[name]
        if layout.batch in value.axes:
            array = array.take([row], value.axes.index(layout.batch))
        inputs[name] = cut(array, value.axes, lengths)
    alone = subject.run(inputs)
    for name, axes in layout.outputs.items():
        if axes.count(layout.batch) != 1:
            continue
        place = axes.index(layout.batch)
        whole = np.moveaxis(_valid(subject, case, name, together[name]), 0, place)
        valid = cut(whole.take([row], place), axes, lengths)
        expected = cut(together[name].take([row], place), axes, lengths)
        if alone[name].shape != expected.shape:
            finding.fail(
                f"{name!r} of row {row} alone has the shape {list(alone[name].shape)}, of its batch "
                f"{list(expected.shape)} at {case.name}"
            )
            continue
        worst = float(difference(expected, alone[name])[valid].max(initial=0.0))
        how = "alone and without its padding" if lengths else "alone"
        why = f"row {row} of {case.name}, run {how}, differs by {worst:.2g} in {name!r}"
        finding.note(int(valid.sum()), worst, noise.other_shape(expected), why)


def _valid(subject: Subject, case: Case, name: str, array: np.ndarray) -> np.ndarray:
    """Return where an output holds valid rows: bool of its shape, the batch in front."""
    axes = subject.layout.outputs[name]
    kinds = case.rows.kinds(replace(subject.layout, outputs={name: axes}), axes, array.shape)
    valid = kinds["valid"] if kinds is not None else np.zeros((), bool)
    return np.moveaxis(np.broadcast_to(valid, array.shape), axes.index(subject.layout.batch), 0)


def cut(array: np.ndarray, axes: tuple[Label, ...], lengths: Mapping[Any, int]) -> np.ndarray:
    """Return the first tokens of an array."""
    # Of no axes at all numpy makes a number.
    return np.asarray(array[tuple(slice(lengths.get(label)) for label in axes)])
