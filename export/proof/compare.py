"""One case on both sides: valid rows, padding rows and rows without a key, each by its own rule.

==============  ============================================  ==============================================
`padding_rows`  padding rows                                  rows without a key
==============  ============================================  ==============================================
any             finite where the source is                    finite where the source is
zero            zero in outputs [batch, tokens, ...], else    zero if they are padding, else finite where the
                finite where the source is                    source is
keep            as the source                                 finite where the source is
==============  ============================================  ==============================================

Valid rows, and outputs without a token axis in batch rows that have a token, equal the source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...models.masks import Mask
from ..cases.draw import Case, is_float
from ..cases.layout import Input, Label, Layout
from ..cases.parity import Difference, Tolerance, differences, tolerance_of
from ..cases.rows import EMPTY, PADDING, VALID, Rows, rows_of
from .interface import Interface

Arrays = Mapping[str, np.ndarray]
ToleranceOf = Callable[[np.ndarray, np.ndarray], Tolerance]
ANY, ZERO, KEEP = "any", "zero", "keep"
PADDING_ROWS = (ANY, ZERO, KEEP)


@dataclass(frozen=True)
class Apart:
    """What is wrong with the rows of one kind of an output, or how far they are apart.

    Attributes
    ----------
    output, rows
        Name of the output; ``valid``, ``padding`` or ``empty``.
    error, limit
        The largest difference, and what it may be.
    why
        What is wrong; None if nothing is.
    bad
        How many numbers are NaN, or infinite where they must be finite.
    """

    output: str
    rows: str
    error: float
    limit: float
    why: str | None = None
    bad: int = 0


def with_rows(case: Case, interface: Interface, masks: Sequence[Mask], computed: Arrays) -> Case:
    """Tell the rows of a case, masks that name tensors which the source computes included."""
    hidden = {name: Input("other", axes, None) for name, axes in interface.hidden.items()}
    layout = replace(interface.layout, inputs={**interface.layout.inputs, **hidden})
    known = [mask for mask in masks if all(name in layout.inputs for name in mask.tensors)]
    inputs = {**case.inputs, **{name: computed[name] for name in hidden}}
    return replace(case, rows=rows_of(layout, case.sizes, inputs, known))


def compare(
    layout: Layout,
    case: Case,
    actual: Arrays,
    expected: Arrays,
    padding_rows: str,
    tolerance: ToleranceOf = lambda actual, expected: tolerance_of(expected.dtype),
) -> list[Apart]:
    """Compare the outputs of a result with those of its source, by kind of row."""
    found: list[Apart] = []
    for name in layout.outputs:
        one, two = actual[name], expected[name]
        if problem := _form(one, two):
            found.append(Apart(name, VALID, np.inf, 0.0, problem))
            continue
        if is_float(one) and is_float(two) and one.dtype.itemsize < two.dtype.itemsize:
            # What the coarser type can't hold is infinite there.
            with np.errstate(over="ignore"):
                coarse = two.astype(one.dtype)
            two = np.where(np.isinf(coarse), coarse.astype(two.dtype), two)
        found += _rows(_alone(layout, name), case, name, one, two, padding_rows, tolerance(one, two))
    return found


def _form(actual: np.ndarray, expected: np.ndarray) -> str | None:
    if actual.shape != expected.shape:
        return f"has the shape {list(actual.shape)}, the source's is {list(expected.shape)}"
    if actual.dtype != expected.dtype and not (is_float(actual) and is_float(expected)):
        return f"is {actual.dtype}, the source's is {expected.dtype}"
    return None


def _alone(layout: Layout, name: str) -> Layout:
    return replace(layout, outputs={name: layout.outputs[name]})


def _rows(
    layout: Layout, case: Case, name: str, one: np.ndarray, two: np.ndarray, padding_rows: str, tolerance: Tolerance
) -> list[Apart]:
    found = []
    for difference in differences(layout, case, {name: one}, {name: two}, tolerance):
        kinds = case.rows.kinds(layout, layout.outputs[name], two.shape)
        assert kinds is not None
        where = np.broadcast_to(kinds[difference.rows], two.shape)
        if difference.rows == VALID or (difference.rows == PADDING and padding_rows == KEEP):
            found.append(_equal(difference))
        else:
            found.append(_finite(difference, one[where], two[where]))
    if padding_rows == ZERO and (zeroed := _zero(layout, case, name, one)):
        found.append(zeroed)
    return found


def _equal(difference: Difference) -> Apart:
    why = None
    if difference.nan:
        why = f"is NaN in {difference.nan} of {difference.elements} numbers where the source isn't"
    elif not difference.error <= difference.limit:
        why = "differs from the source"
    return Apart(difference.output, difference.rows, difference.error, difference.limit, why, difference.nan)


def _finite(difference: Difference, one: np.ndarray, two: np.ndarray) -> Apart:
    bad = int((~np.isfinite(one) & np.isfinite(two)).sum()) if is_float(one) else 0
    why = f"is NaN or infinite in {bad} of {one.size} numbers where the source isn't" if bad else None
    return Apart(difference.output, difference.rows, difference.error, np.inf, why, bad)


def _zero(layout: Layout, case: Case, name: str, one: np.ndarray) -> Apart | None:
    """Return what is not zero of the padding rows of an output [batch, tokens, ...]."""
    axes = layout.outputs[name]
    if axes[:1] != (layout.batch,) or axes[1:2] not in {(label,) for label in layout.tokens}:
        return None
    real = Rows(case.rows.real, {label: np.ones_like(rows) for label, rows in case.rows.real.items()})
    own = replace(layout, tokens=tuple(label for label in layout.tokens if label == axes[1]))
    kinds = Rows({axes[1]: real.real[axes[1]]}, {axes[1]: real.has_key[axes[1]]}).kinds(own, axes[:2], one.shape[:2])
    assert kinds is not None
    padding = one[np.broadcast_to(kinds[PADDING] | kinds[EMPTY], one.shape[:2])]
    if not padding.size:
        return None
    error = float(np.abs(padding.astype(np.float64)).max())
    return Apart(name, PADDING, error, 0.0, None if error == 0 else "is not zero")


def rows_apart(layout: Layout, case: Case, name: str, one: np.ndarray, two: np.ndarray, limit: float) -> np.ndarray:
    """Return in which batch rows an output differs by more than a limit: bool [B]."""
    batch = layout.outputs[name].index(layout.batch)
    with np.errstate(invalid="ignore"):
        apart = np.abs(one.astype(np.float64) - two.astype(np.float64)) > limit
    apart |= np.isnan(one.astype(np.float64)) != np.isnan(two.astype(np.float64))
    return np.asarray(apart.any(axis=tuple(axis for axis in range(one.ndim) if axis != batch)))


def is_pooled(layout: Layout, name: str) -> bool:
    """Whether an output has a batch axis and no token axis: what is in it was read from tokens."""
    axes: tuple[Label, ...] = layout.outputs[name]
    places = layout.positions(axes)
    return bool(layout.tokens) and set(places.values()) == {layout.batch}
