"""Changes of one input, to see whether an output moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...models.masks import Mask
from ..cases.draw import Case, dense_mask, draw_case, is_float
from ..cases.layout import Layout
from ..cases.patterns import NAMES
from ..cases.rows import rows_of


def changes(
    layout: Layout, examples: Mapping[str, np.ndarray], masks: Sequence[Mask], case: Case, name: str, seed: int
) -> Iterator[Case]:
    """Yield the case with another value of one input, in several ways; a way that changes nothing is left out.

    One way alone proves little: an all-ones mask hides nothing, a rotary embedding doesn't see that all positions are
    shifted, segments that are all renumbered are the same segments.
    """
    rng = np.random.default_rng([seed, len(name)])
    old = case.inputs[name]
    for new in _values(layout, examples, case, name, seed, rng):
        if not np.array_equal(new, old):
            inputs = {**case.inputs, name: new}
            rows = rows_of(layout, case.sizes, inputs, masks)
            yield replace(case, name=f"{case.name} with another {name}", inputs=inputs, rows=rows)


def _values(
    layout: Layout,
    examples: Mapping[str, np.ndarray],
    case: Case,
    name: str,
    seed: int,
    rng: np.random.Generator,
) -> Iterator[np.ndarray]:
    old = case.inputs[name]
    if name in layout.masks:
        for pattern in NAMES[1:-1]:
            yield draw_case(layout, examples, (), case.sizes, pattern, seed).inputs[name]
        return
    if layout.inputs[name].role == "mask" and old.ndim >= 2:
        for _ in range(3):
            yield dense_mask(examples[name], old.shape, "holes", rng).astype(old.dtype)
        return
    yield rng.permutation(old.flatten()).reshape(old.shape)
    half = rng.random(old.shape) < 0.5
    if is_float(old):
        yield np.asarray(rng.standard_normal(old.shape)).astype(old.dtype)
        yield np.asarray(-2 * old - 1).astype(old.dtype)
    elif old.dtype == bool:
        yield np.asarray(old ^ half)
        yield np.asarray(~old)
    else:
        for step in (1, -1):
            yield np.where(half, old + step, old).astype(old.dtype)
            yield np.asarray(old + step).astype(old.dtype)
