"""Passes that keep what a graph computes and make it smaller; one file each."""

from __future__ import annotations

from .bias_gelu import BiasGeluPass
from .clean import clean
from .launches import fewer_launches
from .merge_projections import MergeProjectionsPass
from .plain_products import PlainProductsPass
from .rms_norm import RmsNormPass
from .rotary import RotaryPass
from .rows_first import RowsFirstPass
from .skip_norm import SkipNormPass
from .unique_names import UniqueNamesPass
from .wide_heads import WideHeadsPass

__all__ = [
    "BiasGeluPass",
    "MergeProjectionsPass",
    "PlainProductsPass",
    "RmsNormPass",
    "RotaryPass",
    "RowsFirstPass",
    "SkipNormPass",
    "UniqueNamesPass",
    "WideHeadsPass",
    "clean",
    "fewer_launches",
]
