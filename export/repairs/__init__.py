"""Repairs of what PyTorch's exporter writes and ONNX Runtime doesn't run; one file each."""

from __future__ import annotations

import onnx_ir as ir

from .rms_norm_types import RmsNormTypesPass
from .rotary_batch import RotaryBatchPass

__all__ = ["REPAIRS", "RmsNormTypesPass", "RotaryBatchPass", "repair"]

# In the order in which they are applied, by the name that a result shows.
REPAIRS = {"rotary-batch": RotaryBatchPass, "rms-norm-types": RmsNormTypesPass}


def repair(model: ir.Model) -> tuple[str, ...]:
    """Repair a model in place, and return the names of the repairs that changed it."""
    return tuple(name for name, repair_pass in REPAIRS.items() if repair_pass()(model).modified)
