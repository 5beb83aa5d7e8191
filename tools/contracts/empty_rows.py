"""Rows without a key give numbers, and valid rows are never NaN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...export.cases.draw import is_float
from ...export.cases.rows import EMPTY, PADDING, VALID
from ...export.check.backend import BackendError
from ..verdict import OK, Contract
from .finding import Finding
from .subject import Subject

PATTERNS = ("ones", "left", "holes", "no token", "nothing")
QUICK = ("ones", "holes", "no token")
WORDS = {"zero": "zero", "mean": "the mean of all values", "nan": "NaN", "unknown": "finite numbers"}


def empty_rows(subject: Subject, patterns: Sequence[str] = PATTERNS) -> Iterator[Contract]:
    """Run padding that leaves rows without keys, and look for NaN."""
    layout = subject.layout
    valid = Finding("finite-rows", "no valid row was found")
    empty = Finding("empty-rows", "no row is without a key")
    for pattern in patterns if layout.masks else patterns[:1]:
        try:
            usual = subject.usual(pattern)
        except BackendError as error:
            empty.fail(f"it fails with the padding `{pattern}`: {error}")
            continue
        if usual is None:
            continue
        case, outputs = usual
        for name, axes in layout.outputs.items():
            kinds = case.rows.kinds(layout, axes, outputs[name].shape)
            if kinds is None or not is_float(outputs[name]):
                continue
            nan = np.isnan(outputs[name].astype(np.float64))
            for finding, where in ((valid, kinds[VALID]), (empty, kinds[EMPTY] | (kinds[PADDING] & ~kinds[VALID]))):
                rows = np.broadcast_to(where, nan.shape)
                if finding is empty and not np.broadcast_to(kinds[EMPTY], nan.shape).any():
                    continue
                count = int(nan[rows].sum())
                told = "valid rows" if finding is valid else "rows without a key"
                why = f"{name!r} is NaN in {count} numbers of {told} at {case.name}"
                finding.note(int(rows.sum()), float(count), 0.0, why)
    yield valid.contract()
    found = empty.contract()
    if found.status == OK:
        gives = dict.fromkeys(WORDS[claim.empty_rows] for claim in subject.claims)
        found = Contract(found.name, OK, 0.0, f"attention without a key gives {' or '.join(gives)}" if gives else None)
    yield found
