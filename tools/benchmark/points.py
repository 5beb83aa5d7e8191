"""At which sizes a subject is measured."""

from __future__ import annotations

from dataclasses import dataclass

# Of the points that are not real text: about what batches of real paragraphs have.
FILL = 0.36


@dataclass(frozen=True)
class Point:
    """A size.

    Attributes
    ----------
    name
        Which sweep it belongs to.
    batch, length
        Rows, and tokens of the longest.
    fill
        Share of the tokens that is real: lengths are drawn evenly about ``fill * length``, the longest is `length`.
    count
        How many batches.
    """

    name: str
    batch: int
    length: int
    fill: float
    count: int = 1

    def __str__(self) -> str:
        return f"{self.batch} x {self.length}, {self.fill:.0%} real"


TEXT = Point("text", 32, 256, FILL, 4)
BASE = Point("base", 16, 128, FILL, 2)
SWEEPS = {
    "fill": tuple(Point("fill", 16, 128, fill) for fill in (0.3, 0.5, 0.7, 0.85, 1.0)),
    "batch": tuple(Point("batch", batch, 128, FILL if batch > 1 else 1.0) for batch in (1, 4, 16, 64)),
    "length": tuple(Point("length", 4, length, 0.6) for length in (32, 128, 512, 1024)),
}
