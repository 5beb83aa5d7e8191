"""A few numbers that stand for the valid rows of an output, so that they can be compared without a reference.

Let no number be off by more than e. Then the largest and the mean absolute value are off by no more than e. A
projection on random signs, ``sum(sign * x) / sqrt(count)``, is off by more than 6 e once in 3e7 times at most, whatever
the errors are, as the signs don't depend on them (Hoeffding's inequality: 2 exp(-6**2 / 2)). What is off by r in the
root mean square moves a projection by about r: so a fingerprint misses what is off in few numbers and by little.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cases.draw import is_float

DIRECTIONS = 3
# By how many times the error of a number a projection may move.
SPREAD = 6.0
DIGITS = 8


@dataclass(frozen=True)
class Fingerprint:
    """What is kept of an output.

    Attributes
    ----------
    shape
        Of the whole output.
    count
        How many numbers were looked at.
    numbers
        Largest absolute value, mean absolute value, and projections on three directions of signs that are drawn from
        the name; of integers and truth values one checksum.
    """

    shape: tuple[int, ...]
    count: int
    numbers: tuple[float, ...]

    @classmethod
    def of(cls, name: str, output: np.ndarray, where: np.ndarray) -> Fingerprint | None:
        """Take the fingerprint of an output where `where` is true; None if no number is there, or one isn't finite."""
        values = output[np.broadcast_to(where, output.shape)]
        if not values.size:
            return None
        if not is_float(values):
            return cls(output.shape, values.size, (float(zlib.crc32(values.astype("<i8").tobytes())),))
        values = values.astype(np.float64)
        if not np.isfinite(values).all():
            return None
        sizes = np.abs(values)
        projections = _signs(name, values.size) @ values / np.sqrt(values.size)
        numbers = (sizes.max(), sizes.mean(), *projections)
        return cls(output.shape, values.size, tuple(float(f"{number:.{DIGITS}g}") for number in numbers))

    @property
    def scale(self) -> float:
        """What the tolerance of the numbers is a part of: the largest absolute value, at least 1."""
        return max(1.0, self.numbers[0])

    def moved(self, other: Fingerprint) -> float:
        """Return by how much the numbers are off at least, if the two are of the same output."""
        if len(self.numbers) != len(other.numbers):
            return float("inf")
        apart = [abs(one - two) for one, two in zip(self.numbers, other.numbers, strict=True)]
        return max([*apart[:2], *(each / SPREAD for each in apart[2:])])

    def to_json(self) -> list[Any]:
        """Return it with JSON's types, as short as it can be: there is one for each case."""
        return [list(self.shape), self.count, *self.numbers]

    @classmethod
    def from_json(cls, entry: Sequence[Any]) -> Fingerprint:
        """Read it back.

        Raises
        ------
        ValueError, TypeError
            If it is none.
        """
        shape, count, *numbers = entry
        found = cls(tuple(map(int, shape)), int(count), tuple(map(float, numbers)))
        if len(numbers) not in (1, 2 + DIRECTIONS) or not np.isfinite(found.numbers).all():
            raise ValueError(f"{len(numbers)} numbers of a fingerprint, or one that isn't finite")
        return found


def _signs(name: str, count: int) -> np.ndarray:
    """Return three directions of 1 and -1, the same on every machine and with every version of everything."""
    bits = DIRECTIONS * count
    drawn = np.frombuffer(hashlib.shake_128(name.encode()).digest(-(-bits // 8)), np.uint8)
    return np.unpackbits(drawn, count=bits).reshape(DIRECTIONS, count) * 2.0 - 1.0
