"""The inputs of a point, and the same inputs padded otherwise."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...export.cases.draw import Size, draw_case, sizes_of
from ...export.cases.layout import Layout
from ...export.cases.patterns import padding_patterns
from .points import Point

Arrays = dict[str, np.ndarray]
# How a candidate is checked: small, because every padding is tried.
CHECKED = (5, 24)
PATTERNS = ("ones", "right", "left", "holes")


def point_batches(layout: Layout, examples: Mapping[str, np.ndarray], point: Point) -> list[Arrays]:
    """Return a point's batches: rows of drawn lengths, padded on the right."""
    rng = np.random.default_rng(0)
    batches = []
    for seed in range(point.count):
        lengths = _lengths(point, rng)
        keep = np.arange(point.length) < lengths[:, None]
        batches.append(_drawn(layout, examples, keep, seed))
    return batches


def checked_batches(layout: Layout, examples: Mapping[str, np.ndarray]) -> dict[str, Arrays]:
    """Return a small batch for each padding pattern, by its name; the whole one alone if nothing can be padded."""
    drawn = padding_patterns(*CHECKED, np.random.default_rng(0))
    names = PATTERNS if layout.masks else PATTERNS[:1]
    return {name: _drawn(layout, examples, drawn[name], 0) for name in names}


def real_tokens(layout: Layout, batch: Mapping[str, np.ndarray]) -> tuple[int, int]:
    """Return how many tokens of a batch are real, and how many there are, over all its padding masks."""
    kept = [batch[name] != layout.inputs[name].pad for name in layout.masks]
    return sum(int(keep.sum()) for keep in kept), sum(keep.size for keep in kept)


def _lengths(point: Point, rng: np.random.Generator) -> np.ndarray:
    # The longest is as long as the batch; the others lie evenly about what makes the share right.
    others = point.batch - 1
    mean = np.clip((point.fill * point.batch - 1) * point.length / max(others, 1), 1, point.length)
    spread = min(mean - 1, point.length - mean)
    even = np.rint(np.linspace(mean - spread, mean + spread, others)).astype(int)
    return rng.permutation(np.append(even, point.length))


def _drawn(layout: Layout, examples: Mapping[str, np.ndarray], keep: np.ndarray, seed: int) -> Arrays:
    # Every token axis, those of an encoder's memory included, is as long and padded alike.
    sizes = sizes_of(layout, Size(keep.shape[0], keep.shape[1], keep.shape[1]))
    inputs = draw_case(layout, examples, (), sizes, "ones", seed).inputs
    for name in layout.masks:
        pad = np.asarray(layout.inputs[name].pad, inputs[name].dtype)
        inputs[name] = np.where(keep, inputs[name], pad)
    return inputs
