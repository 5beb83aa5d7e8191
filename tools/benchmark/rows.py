"""Row by row without padding: what a careful user writes around a padded model."""

from __future__ import annotations

import numpy as np

from ...export.cases.layout import Label, Layout
from .engines import Arrays, Run


def by_rows(run: Run, layout: Layout) -> Run:
    """Return a function that runs each row of a batch for itself, on its real tokens, and joins the results.

    Positions count from a row's first real token, and padding rows become zero.
    """
    axes = next(iter(layout.outputs.values()))
    places = layout.positions(axes)
    batch_axis = next((place for place, label in places.items() if label == layout.batch), None)
    if batch_axis is None or not layout.masks:
        raise ValueError("there is no padding mask, or no batch axis in the output: rows can't be run alone")

    def rows(batch: Arrays) -> np.ndarray:
        joined: np.ndarray | None = None
        size = len(batch[next(iter(layout.masks))])
        for row in range(size):
            kept = _kept(layout, batch, row)
            inputs = {
                name: _take(array, layout.positions(layout.inputs[name].axes), layout.batch, row, kept)
                for name, array in batch.items()
            }
            output = run(inputs)
            if joined is None:
                shape = list(output.shape)
                for place, label in places.items():
                    shape[place] = size if place == batch_axis else len(_mask(layout, batch, label)[row])
                joined = np.zeros(shape, output.dtype)
            index = [np.arange(n) for n in output.shape]
            for place, label in places.items():
                index[place] = np.array([row]) if place == batch_axis else kept[label]
            joined[np.ix_(*index)] = output
        assert joined is not None
        return joined

    return rows


def _mask(layout: Layout, batch: Arrays, label: Label) -> np.ndarray:
    return next(batch[name] != layout.inputs[name].pad for name, of in layout.masks.items() if of == label)


def _kept(layout: Layout, batch: Arrays, row: int) -> dict[Label, np.ndarray]:
    return {label: np.flatnonzero(_mask(layout, batch, label)[row]) for label in layout.masks.values()}


def _take(
    array: np.ndarray, places: dict[int, Label], batch: Label, row: int, kept: dict[Label, np.ndarray]
) -> np.ndarray:
    for place, label in places.items():
        if label == batch:
            array = array.take([row], place)
        elif label in kept:
            array = array.take(kept[label], place)
    return array
