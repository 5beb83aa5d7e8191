"""Rows of outputs without a token axis that read padding in the source itself.

The first token that a BERT pooler takes is padding where that is on the left: what the pooler gives there depends on
what the caller pads with, so no rewrite that leaves padding rows open can keep it. Such a row is not compared, but only
if padding on some side leaves the output alone: a plain mean over all tokens reads padding always, and stays compared.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..cases.draw import Case, is_float
from ..check.backend import BackendError
from .interface import Interface
from .side import Side

SIDES = ("right", "left")


class Pooled:
    """Which rows of outputs read padding in the source; found when it is asked for, as it takes runs of the source."""

    def __init__(self, interface: Interface, source: Side, seed: int) -> None:
        self.interface, self.source, self.seed = interface, source, seed
        self._sides: dict[tuple[object, ...], bool] = {}

    def reads_padding(self, name: str, case: Case) -> np.ndarray:
        """Return in which batch rows of a case an output reads padding, though it needn't: bool [B]."""
        moved = self._moved(name, case)
        if moved.any() and not self._is_well_defined(name, case):
            return np.zeros_like(moved)
        return moved

    def _is_well_defined(self, name: str, case: Case) -> bool:
        key = (name, *case.sizes.items())
        if key not in self._sides:
            cases = [self.interface.draw(case.sizes, side, self.seed) for side in SIDES]
            self._sides[key] = any(not self._moved(name, other).any() for other in cases if _is_padded(other, self))
        return self._sides[key]

    def _moved(self, name: str, case: Case) -> np.ndarray:
        """Return in which batch rows an output moves when what stands under padding is another."""
        axes = self.interface.layout.outputs[name]
        batch = axes.index(self.interface.layout.batch)
        try:
            before, after = (self.source.run(inputs)[name] for inputs in (case.inputs, self._repadded(case)))
        except BackendError:
            return np.zeros(case.sizes[self.interface.layout.batch], bool)
        apart = (before != after) & ~((before != before) & (after != after))
        return np.asarray(apart.any(axis=tuple(axis for axis in range(apart.ndim) if axis != batch)))

    def _repadded(self, case: Case) -> dict[str, np.ndarray]:
        layout = self.interface.layout
        other = self.interface.draw(case.sizes, "ones", self.seed + 1).inputs
        inputs = dict(case.inputs)
        hidden = self._hidden(case)
        for name, value in layout.inputs.items():
            if name in layout.masks or value.role in ("mask", "packing", "positions") or len(value.axes) < 2:
                continue
            padding = hidden.get(value.axes[1]) if value.axes[0] == layout.batch else None
            if padding is None:
                continue
            where = padding.reshape(*padding.shape, *(1,) * (inputs[name].ndim - 2))
            drawn = other[name] + (inputs[name] if is_float(inputs[name]) else 0)
            inputs[name] = np.where(where, drawn, inputs[name]).astype(inputs[name].dtype)
        return inputs

    def _hidden(self, case: Case) -> dict[object, np.ndarray]:
        layout = self.interface.layout
        found: dict[object, np.ndarray] = {}
        for name, label in layout.masks.items():
            found[label] = found.get(label, False) | np.asarray(case.inputs[name] == layout.inputs[name].pad)
        return found


def _is_padded(case: Case, pooled: Pooled) -> bool:
    return any(hidden.any() for hidden in pooled._hidden(case).values())


def without_rows(case: Case, rows: np.ndarray) -> Case:
    """Return a case in which some batch rows count as rows without a key, so that they are not compared."""
    has_key = {label: array & ~rows[:, None] for label, array in case.rows.has_key.items()}
    return replace(case, rows=replace(case.rows, has_key=has_key))
