"""Repairs of files that ONNX Runtime doesn't run, or that it runs into NaN; one file each.

Those of what PyTorch's exporter writes are applied by :func:`repair` to every export. The others are for files that
were made elsewhere: :func:`offered` tells which of them would do something, and :func:`apply` does what is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from ..errors import OptimizeError
from .empty_rows import EmptyRowsPass
from .half_fill import HalfFillPass
from .key_mask_rank import KeyMaskRankPass
from .multiplied_mask import MultipliedMaskPass
from .repair_pass import RepairPass
from .rms_norm_types import RmsNormTypesPass
from .rotary_batch import RotaryBatchPass

__all__ = [
    "REPAIRS",
    "EmptyRowsPass",
    "HalfFillPass",
    "KeyMaskRankPass",
    "MultipliedMaskPass",
    "Repair",
    "RepairPass",
    "RmsNormTypesPass",
    "RotaryBatchPass",
    "apply",
    "offered",
    "repair",
]


@dataclass(frozen=True)
class Repair:
    """A repair.

    Attributes
    ----------
    make : type of RepairPass
        Its pass.
    summary : str
        What it does, in one line.
    changes_meaning : bool
        Whether results change that were numbers before: not NaN, and no error.
    of_exports : bool
        Whether it is for what PyTorch's exporter writes, and is done unasked there.
    """

    make: type[RepairPass]
    summary: str
    changes_meaning: bool = False
    of_exports: bool = False


# In the order in which they are applied, by the name that a result shows.
REPAIRS = {
    "rotary-batch": Repair(RotaryBatchPass, "give cos and sin of batch 1 the batch of their input", of_exports=True),
    "rms-norm-types": Repair(RmsNormTypesPass, "normalise half precision in the type of its scale", of_exports=True),
    "key-mask-rank": Repair(KeyMaskRankPass, "expand masks of one row to a row for each query"),
    "half-fill": Repair(HalfFillPass, "replace infinite fills that masks are multiplied with by finite ones"),
    "multiplied-mask": Repair(
        MultipliedMaskPass, "hide the keys whose scores are multiplied with 0, which hides none", changes_meaning=True
    ),
    "empty-rows": Repair(EmptyRowsPass, "set rows without a key to zero, where they are NaN"),
}


def repair(model: ir.Model) -> tuple[str, ...]:
    """Repair what PyTorch's exporter wrote, in place, and return the names of the repairs that changed it."""
    return tuple(name for name, one in REPAIRS.items() if one.of_exports and one.make()(model).modified)


def offered(model: ir.Model) -> dict[str, int]:
    """Return the repairs that would change a model, each with the number of nodes; the model is left as it is."""
    copied = model.clone()
    InlinePass()(copied)
    found = {name: len(one.make().find(copied)) for name, one in REPAIRS.items()}
    return {name: number for name, number in found.items() if number}


def apply(model: ir.Model, names: Iterable[str]) -> dict[str, int]:
    """Apply repairs to a model in place; its functions are inlined.

    Parameters
    ----------
    model : onnx_ir.Model
        The model.
    names : iterable of str
        Keys of :data:`REPAIRS`. They are applied in its order.

    Returns
    -------
    dict of str to int
        The number of nodes that each of them repaired, 0 where there were none.

    Raises
    ------
    OptimizeError
        If a name is unknown; nothing is changed then.
    """
    asked = set(names)
    if unknown := sorted(asked - REPAIRS.keys()):
        raise OptimizeError(f"there is no repair {unknown[0]!r}; give {', '.join(REPAIRS)}")
    InlinePass()(model)
    done = {}
    for name, one in REPAIRS.items():
        if name in asked:
            made = one.make()
            found = made.find(model)
            made.mend(found)
            done[name] = len(found)
    return done
