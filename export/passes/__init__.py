"""Passes that keep what a graph computes and make it smaller; one file each."""

from __future__ import annotations

from .bias_gelu import BiasGeluPass
from .clean import clean
from .launches import fewer_launches
from .merge_projections import MergeProjectionsPass
from .rms_norm import RmsNormPass
from .skip_norm import SkipNormPass
from .unique_names import UniqueNamesPass

__all__ = [
    "BiasGeluPass",
    "MergeProjectionsPass",
    "RmsNormPass",
    "SkipNormPass",
    "UniqueNamesPass",
    "clean",
    "fewer_launches",
]
