"""Which candidate is right: its valid rows against the reference's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ...export.cases.draw import Case
from ...export.cases.layout import Label, Layout
from ...export.cases.parity import differences, worst_valid
from ...export.cases.rows import VALID, rows_of


class Found(NamedTuple):
    """What a comparison found.

    Attributes
    ----------
    error
        The largest on valid rows; None where a value is not finite, or nothing can be compared.
    wrong
        Why it is more than rounding, or nothing ran; empty if it is right.
    """

    error: float | None
    wrong: str = ""


class Comparison:
    """One batch with the reference's output.

    Parameters
    ----------
    layout
        Of the subject.
    batch
        The inputs.
    expected
        The reference's first output.
    """

    def __init__(self, layout: Layout, batch: Mapping[str, np.ndarray], expected: np.ndarray) -> None:
        output, axes = next(iter(layout.outputs.items()))
        self.layout = Layout(layout.inputs, {output: axes}, layout.batch, layout.tokens)
        sizes: dict[Label, int] = {
            label: size
            for name, array in batch.items()
            for label, size in zip(layout.inputs[name].axes, array.shape, strict=True)
        }
        self.case = Case("", sizes, "", dict(batch), rows_of(layout, sizes, batch, ()))
        self.output, self.expected = output, expected

    def found(self, actual: np.ndarray) -> Found:
        """Compare an output with the reference's."""
        if actual.shape != self.expected.shape:
            why = f"its output is {list(actual.shape)}, the reference's {list(self.expected.shape)}"
            return Found(None, why)
        found = differences(self.layout, self.case, {self.output: actual}, {self.output: self.expected})
        worst = worst_valid(found)
        if worst is None:
            return Found(None, "no valid row could be compared")
        if all(difference.ok for difference in found if difference.rows == VALID):
            return Found(worst)
        return Found(worst if np.isfinite(worst) else None, f"valid rows differ by {worst:.1e}")
