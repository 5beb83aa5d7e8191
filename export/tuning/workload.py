"""The sizes that a model is used at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import OptimizeError
from ..lowering.costs import TYPICAL

__all__ = ["Workload"]

SHAPE = re.compile(r"([1-9]\d*)x([1-9]\d*)")


@dataclass(frozen=True)
class Workload:
    """What to measure for.

    Attributes
    ----------
    shapes : tuple of (int, int)
        Batches and lengths, each of the same weight.
    fill : float
        Share of the tokens that is real, above 0 and up to 1.
    seconds : float
        Of measuring, for each comparison and shape; five rounds are run at least.

    Raises
    ------
    OptimizeError
        If there is no shape, or a number is out of its bounds.
    """

    shapes: tuple[tuple[int, int], ...] = (TYPICAL,)
    fill: float = 0.36
    seconds: float = 1.0

    def __post_init__(self) -> None:
        if not self.shapes or any(size < 1 for shape in self.shapes for size in shape):
            raise OptimizeError(f"the shapes are {self.shapes}; give batches and lengths of at least 1")
        if not 0 < self.fill <= 1:
            raise OptimizeError(f"the fill is {self.fill:g}; give the share of real tokens, above 0 and up to 1")

    @classmethod
    def parse(cls, shapes: Sequence[str], fill: float | None = None) -> Workload:
        """Read shapes as the command line writes them, ``16x128``; nothing given is the default."""
        found = []
        for text in shapes:
            match = SHAPE.fullmatch(text)
            if match is None:
                raise OptimizeError(f"the shape is {text!r}; give batch and length, such as 16x128")
            found.append((int(match[1]), int(match[2])))
        given: dict[str, object] = {"shapes": tuple(found)} if found else {}
        return cls(**given, **({} if fill is None else {"fill": fill}))  # type: ignore[arg-type]

    def keep(self, batch: int, length: int) -> np.ndarray:
        """Return which tokens are real, bool [batch, length]: the longest row is whole, others lie evenly about."""
        if batch == 1:
            lengths = np.array([max(1, round(self.fill * length))])
        else:
            mean = np.clip((self.fill * batch - 1) * length / (batch - 1), 1, length)
            spread = min(mean - 1, length - mean)
            even = np.rint(np.linspace(mean - spread, mean + spread, batch - 1)).astype(int)
            lengths = np.random.default_rng(0).permutation(np.append(even, length))
        return np.arange(length) < lengths[:, None]
