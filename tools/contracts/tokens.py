"""Other tokens in a case, and how far each row of the outputs moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...export.cases.draw import Case, is_float
from ...export.cases.layout import Label
from .subject import Arrays, Subject


@dataclass(frozen=True)
class Redrawn:
    """A case with other tokens: `changed` says by token axis which are, bool [B, S]."""

    case: Case
    changed: dict[Label, np.ndarray]


def redrawn(
    subject: Subject, case: Case, where: Mapping[Label, np.ndarray], fill: float | None = None, seed: int = 1
) -> Redrawn:
    """Put other tokens in chosen places.

    Parameters
    ----------
    subject, case
        What is tried, and on what.
    where
        By token axis, the places: bool [B, S].
    fill
        What floating-point tokens become; by default they are drawn anew.
    seed
        Of what is drawn.

    Returns
    -------
    Redrawn
        Ids that the graph looks for stay, and no other token becomes one.
    """
    rng = np.random.default_rng([subject.seed, seed])
    inputs = dict(case.inputs)
    changed = {label: np.zeros(places.shape, bool) for label, places in where.items()}
    for label, places in where.items():
        for name, axis in subject.tokens(label).items():
            old = inputs[name]
            shape = [1] * old.ndim
            shape[0], shape[axis] = places.shape
            new = _other(subject, name, old, fill, rng)
            inputs[name] = np.where(places.reshape(shape), new, old).astype(old.dtype)
            differs = (inputs[name] != old).any(axis=tuple(i for i in range(old.ndim) if i not in (0, axis)))
            changed[label] |= differs
    return Redrawn(replace(case, inputs=inputs), changed)


def _other(subject: Subject, name: str, old: np.ndarray, fill: float | None, rng: np.random.Generator) -> np.ndarray:
    if is_float(old):
        return np.full(old.shape, fill) if fill is not None else rng.standard_normal(old.shape)
    kept = subject.kept_ids.get(name, frozenset())
    values = np.unique(np.asarray([value for value in subject.interface.examples[name].flatten() if value not in kept]))
    if values.size < 2:
        return old
    # Another id than the one that is there: some places further in their order.
    steps = rng.integers(1, values.size, old.shape)
    new = values[(np.searchsorted(values, old) + steps) % values.size]
    return np.where(np.isin(old, list(kept)), old, new)


def moved(subject: Subject, label: Label, before: Arrays, after: Arrays) -> dict[str, np.ndarray]:
    """Return how far each row of each output on a token axis moves: float64 [B, S] by name, inf where it is NaN.

    It is a part of the largest value of the output, at least 1.
    """
    layout = subject.layout
    found = {}
    for name, axes in layout.outputs.items():
        if axes.count(layout.batch) != 1 or axes.count(label) != 1:
            continue
        one, two = (_in_front(array[name], axes.index(layout.batch), axes.index(label)) for array in (before, after))
        found[name] = difference(one, two).reshape(*one.shape[:2], -1).max(axis=2, initial=0.0)
    return found


def difference(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return how far numbers are apart as a part of the largest, at least 1; inf where one alone is NaN."""
    one, two = before.astype(np.float64), after.astype(np.float64)
    finite = np.abs(one[np.isfinite(one)])
    with np.errstate(invalid="ignore"):
        apart = np.where((one == two) | (np.isnan(one) & np.isnan(two)), 0.0, np.abs(one - two))
    return np.nan_to_num(apart, nan=np.inf, posinf=np.inf) / max(1.0, float(finite.max(initial=0.0)))


def _in_front(array: np.ndarray, batch: int, token: int) -> np.ndarray:
    return np.moveaxis(array, (batch, token), (0, 1))
