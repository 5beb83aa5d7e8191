"""Values that are the same numbers, whatever the order of their axes: how a value of one graph is found in another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...export.cases.draw import is_float
from ...export.cases.parity import tolerance_of

# What a tolerance allows at the end has grown over all layers; of one value less is asked.
SHARE = 0.2
# What is filled in for masked scores is as low as this, or lower, and is no measure of other numbers.
LOW = 1e9
SAMPLES = 16


class Known(NamedTuple):
    """A value of the reference, and what says where it was computed."""

    array: np.ndarray
    place: Any


class RealTokens:
    """Which tokens are compared, and where they lie in values of any shape.

    Parameters
    ----------
    real
        Per token axis, bool [B, S]. Axes are found by their sizes, so B and the lengths should differ from all others.
    """

    def __init__(self, real: Sequence[np.ndarray] = ()) -> None:
        self.batch = len(real[0]) if real else 0
        self.real: dict[int, np.ndarray] = {}
        for tokens in real:
            length = tokens.shape[1]
            self.real[length] = self.real.get(length, np.ones_like(tokens)) & tokens

    def of(self, array: np.ndarray) -> np.ndarray:
        """Return the numbers at real tokens, one after the other; all of a value without a batch and a token axis.

        They are the same for [B, S, H, D], [B, H, S, D], [B*S, H*D], and what packing leaves of those.
        """
        array = self._split(array)
        places = [axis for axis, size in enumerate(array.shape) if size == self.batch][:1]
        if places:
            places += [axis for axis, size in enumerate(array.shape) if size in self.real and axis != places[0]]
        if len(places) < 2:
            return array.reshape(-1)
        front = np.moveaxis(array, places, range(len(places)))
        keep = np.ones(front.shape[: len(places)], bool)
        for axis in range(1, len(places)):
            shape = [self.batch, *(front.shape[axis] if axis == other else 1 for other in range(1, len(places)))]
            keep &= self.real[front.shape[axis]].reshape(shape)
        return front[keep].reshape(-1)

    def _split(self, array: np.ndarray) -> np.ndarray:
        """Return an array whose first axis is the batch and another in one with both apart."""
        first, *rest = array.shape or (0,)
        if self.batch < 2 or self.batch in array.shape or first % self.batch or not first:
            return array
        if first // self.batch in self.real or (len(rest) == 2 and self.real.keys() & set(rest)):
            return array.reshape(self.batch, -1, *rest)
        return array


class Values:
    """The values of a reference, to be asked for a twin."""

    def __init__(self, known: Iterable[Known], real: RealTokens) -> None:
        self._real = real
        groups: dict[tuple[int, bool], list[tuple[np.ndarray, Known]]] = {}
        for one in known:
            numbers = _plain(real.of(one.array))
            groups.setdefault((numbers.size, is_float(one.array)), []).append((numbers, one))
        self._groups = {
            key: (np.stack([numbers[_places(numbers.size)] for numbers, _ in group]), group)
            for key, group in groups.items()
            if key[0]
        }

    def twin(self, array: np.ndarray) -> Known | None:
        """Return the value that was computed first of those that have the same numbers; None if none has."""
        return next(self._twins(array), None)

    def _twins(self, array: np.ndarray) -> Iterator[Known]:
        numbers = _plain(self._real.of(array))
        samples, group = self._groups.get((numbers.size, is_float(array)), (np.empty(0), []))
        if not group:
            return
        with np.errstate(invalid="ignore"):
            size = float(np.nanmax(np.where(np.abs(numbers) < LOW, np.abs(numbers), 0), initial=1.0))
            sample = numbers[_places(numbers.size)]
            for place in np.flatnonzero(_close(samples, sample, array, size, axis=1)):
                other, known = group[place]
                coarser = min(array, known.array, key=lambda given: given.dtype.itemsize)
                if _close(other, numbers, coarser, size):
                    yield known


def _plain(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64).clip(-LOW, LOW) if is_float(array) else array.astype(np.int64)


def _places(size: int) -> np.ndarray:
    return np.linspace(0, size - 1, min(size, SAMPLES)).astype(int)


def _close(one: np.ndarray, two: np.ndarray, like: np.ndarray, size: float, axis: int | None = None) -> Any:
    share = SHARE * tolerance_of(like.dtype).value
    return np.isclose(one, two, rtol=share, atol=share * size, equal_nan=True).all(axis=axis)
