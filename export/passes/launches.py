"""Fewer launches on CUDA, by operators that do at once what follows each other."""

from __future__ import annotations

__all__ = ["fewer_launches"]

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, common

from .bias_gelu import BiasGeluPass
from .merge_projections import MergeProjectionsPass
from .plain_products import PlainProductsPass
from .rms_norm import RmsNormPass
from .rotary import RotaryPass
from .rows_first import RowsFirstPass
from .skip_norm import SkipNormPass
from .wide_heads import WideHeadsPass

# In this order: each makes room for the next.
FUSIONS: dict[str, type[InPlacePass]] = {
    "write products plainly": PlainProductsPass,
    "fuse norms": RmsNormPass,
    "fuse rotary embeddings": RotaryPass,
    "widen heads in weights": WideHeadsPass,
    "merge projections": MergeProjectionsPass,
    "pick rows before splits": RowsFirstPass,
    "fuse sums into norms": SkipNormPass,
    "fuse biases into Gelu": BiasGeluPass,
}


def fewer_launches(model: ir.Model) -> dict[str, int]:
    """Fuse in place what CUDA has an operator for, [B, S, E] and [T, E] alike; return what was done, and whether.

    On the CPU nothing is gained: ONNX Runtime fuses sums and norms there when it loads a file.
    """
    # Shapes say which sums are of one shape.
    common.ShapeInferencePass()(model)
    done = {}
    for name, fuse in FUSIONS.items():
        done[name] = int(fuse()(model).modified)
        # What nothing uses any more would be one more user of what it was made from.
        common.RemoveUnusedNodesPass()(model)
    return done
