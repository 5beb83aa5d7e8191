"""Where a failed validation went wrong, told on the failing case that shows it best."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...export.cases.draw import Case
from ...export.cases.layout import Layout
from ..verdict import FAILED, Contract

if TYPE_CHECKING:
    from .localise import Parting

# All values of a case are held: scores grow with the square of its length.
MAX_TOKENS = 512
TRIES = 3


def first_difference(
    candidate: Any,
    against: Any,
    cases: Sequence[Case],
    layout: Layout,
    reference: Callable[[Mapping[str, np.ndarray]], object],
) -> list[Contract]:
    """Return where a candidate leaves its reference, as a contract that failed; none if it can't be told.

    Parameters
    ----------
    candidate : path or bytes
        Of a file.
    against : path, bytes or torch.nn.Module
        What it was compared with.
    cases
        Those on which valid rows differ.
    layout
        Of their inputs.
    reference
        Runs `against`.
    """
    for case in sorted((case for case in cases if _tokens(case) <= MAX_TOKENS), key=_unclear)[:TRIES]:
        try:
            found = _parting(candidate, against, case, layout, reference)
        except Exception:
            # What anyone's file or module does when it is taken apart is not known; the verdict doesn't depend on it.
            continue
        if found is not None:
            why = f"{found.told}, at {case.name}"
            return [Contract("first-difference", FAILED, why=why, source=found.source)]
    return []


def _parting(
    candidate: Any,
    against: Any,
    case: Case,
    layout: Layout,
    reference: Callable[[Mapping[str, np.ndarray]], object],
) -> Parting | None:
    from .localise import first_apart

    known = against
    if not isinstance(against, str | bytes | os.PathLike):
        from .module_values import values_of

        known = values_of(against, lambda: reference(case.inputs))
    real = [case.rows.real[label] & case.rows.has_key[label] for label in layout.tokens]
    return first_apart(candidate, known, case.inputs, real)


def _tokens(case: Case) -> int:
    return max((real.size for real in case.rows.real.values()), default=1)


def _unclear(case: Case) -> tuple[bool, bool, int]:
    """Order cases: those whose axes can be told by their sizes, those whose rows have keys, small ones."""
    shapes = [real.shape for real in case.rows.real.values()]
    alike = any(batch < 2 or length < 3 or batch == length for batch, length in shapes)
    return alike, not all(has_key.all() for has_key in case.rows.has_key.values()), _tokens(case)
