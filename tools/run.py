"""A model run once: what went in, what came out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from .tables import plain_table


@dataclass(frozen=True)
class Summary:
    """A tensor in figures.

    Attributes
    ----------
    name, shape, dtype
        Of the tensor.
    low, mean, high
        Over its entries that are not NaN; None if it has none, or holds no numbers.
    nans
        How many entries are NaN.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float | None
    mean: float | None
    high: float | None
    nans: int

    @classmethod
    def of(cls, name: str, array: np.ndarray) -> Summary:
        """Summarise an array."""
        low = mean = high = None
        nans = 0
        if array.dtype.kind in "biuf":
            values = array.astype(np.float64)
            nan = np.isnan(values)
            nans, values = int(nan.sum()), values[~nan]
            if values.size:
                with np.errstate(invalid="ignore", over="ignore"):
                    low, mean, high = (float(figure(values)) for figure in (np.min, np.mean, np.max))
        return cls(name, array.shape, array.dtype.name, low, mean, high, nans)

    def to_json(self) -> dict[str, Any]:
        """Return it with JSON's types: an infinite figure is a string."""
        figures = {"min": self.low, "mean": self.mean, "max": self.high}
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": self.dtype,
            **{key: value if value is None or math.isfinite(value) else str(value) for key, value in figures.items()},
            "nan": self.nans,
        }


def summarise(arrays: Mapping[str, Any]) -> list[Summary]:
    """Summarise arrays by name."""
    return [Summary.of(name, np.asarray(array)) for name, array in arrays.items()]


def summary_table(what: str, summaries: list[Summary]) -> Table:
    """Return one line per tensor: name, shape, type, smallest, mean and largest entry, NaN count."""
    table = plain_table(what, "shape", "dtype", ">min", ">mean", ">max", ">NaN")
    for summary in summaries:
        table.add_row(
            escape(summary.name),
            "x".join(map(str, summary.shape)) or "scalar",
            summary.dtype,
            *("-" if figure is None else f"{figure:.3g}" for figure in (summary.low, summary.mean, summary.high)),
            f"[bold red]{summary.nans}[/]" if summary.nans else "0",
        )
    return table
