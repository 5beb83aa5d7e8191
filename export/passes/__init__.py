"""Passes that keep what a graph computes and make it smaller; one file each."""

from __future__ import annotations

from .clean import clean
from .merge_projections import MergeProjectionsPass
from .unique_names import UniqueNamesPass

__all__ = ["MergeProjectionsPass", "UniqueNamesPass", "clean"]
