"""Two sets of outputs, compared row by row: valid rows, padding and rows without a key each for themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .draw import Case, is_float
from .layout import Layout
from .rows import KINDS, VALID


@dataclass(frozen=True)
class Tolerance:
    """The largest difference allowed, per unit of the largest value of the row's output (at least 1), and why."""

    value: float
    why: str


TOLERANCES = {
    "float64": Tolerance(1e-6, "numbers in attributes, such as the epsilon of a layer norm, are float32 in ONNX"),
    "float32": Tolerance(5e-5, "sums in another order differ by some 1e-6 a layer"),
    "float16": Tolerance(2e-2, "eleven bits are 5e-4 of a value, rounded several times a layer"),
    "bfloat16": Tolerance(1e-1, "eight bits are 4e-3 of a value, rounded several times a layer"),
}
EXACT = Tolerance(0.0, "integers and truth values are not rounded")


def tolerance_of(dtype: np.dtype | str) -> Tolerance:
    """Return the tolerance of an output's element type."""
    return TOLERANCES.get(dtype if isinstance(dtype, str) else dtype.name, EXACT)


@dataclass(frozen=True)
class Difference:
    """How far the rows of one kind of one output are apart.

    Attributes
    ----------
    output
        Name of the output.
    rows
        ``valid``, ``padding`` or ``empty`` (rows without a key).
    elements
        How many numbers were compared.
    error
        Largest absolute difference where both are finite or equal; inf where one is infinite and the other isn't.
    limit
        What `error` may be.
    nan
        In how many places the candidate alone is NaN.
    lost_nan
        In how many places the reference alone is NaN.
    """

    output: str
    rows: str
    elements: int
    error: float
    limit: float
    nan: int
    lost_nan: int

    @property
    def ok(self) -> bool:
        """Whether the error is within the limit and NaN stands in the same places."""
        return self.error <= self.limit and not self.nan and not self.lost_nan


def differences(
    layout: Layout,
    case: Case,
    actual: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    tolerance: Tolerance | None = None,
) -> list[Difference]:
    """Compare a candidate's outputs with a reference's, one entry per output and kind of row that the case has.

    Outputs whose rows can't be told apart are compared where every row of the case is valid, and left out elsewhere.
    A `tolerance` is that of floating-point outputs; by default it is that of the reference's element type.
    """
    found = []
    for name, axes in layout.outputs.items():
        one, two = actual[name], expected[name]
        kinds = case.rows.kinds(layout, axes, two.shape)
        if kinds is None:
            continue
        for kind in KINDS:
            where = np.broadcast_to(kinds[kind], two.shape)
            if where.any():
                limit = tolerance if tolerance is not None and is_float(two) else tolerance_of(two.dtype)
                found.append(_difference(name, kind, one[where], two[where], limit.value))
    return found


def _difference(name: str, kind: str, actual: np.ndarray, expected: np.ndarray, limit: float) -> Difference:
    if not is_float(expected):
        error = float(np.max(actual != expected, initial=False))
        return Difference(name, kind, expected.size, error, limit, 0, 0)
    one, two = actual.astype(np.float64), expected.astype(np.float64)
    one_nan, two_nan = np.isnan(one), np.isnan(two)
    both = ~one_nan & ~two_nan
    with np.errstate(invalid="ignore"):
        apart = np.where(one == two, 0.0, np.abs(one - two))
    finite = two[np.isfinite(two)]
    limit *= max(1.0, float(np.abs(finite).max(initial=0.0)))
    error = float(apart[both].max(initial=0.0))
    return Difference(
        name, kind, expected.size, error, limit, int((one_nan & ~two_nan).sum()), int((two_nan & ~one_nan).sum())
    )


def worst_valid(found: list[Difference]) -> float | None:
    """Return the largest error on valid rows; NaN if a side alone is NaN there, None if there are no valid rows."""
    valid = [difference for difference in found if difference.rows == VALID]
    if not valid:
        return None
    if any(difference.nan or difference.lost_nan for difference in valid):
        return float("nan")
    return max(difference.error for difference in valid)
