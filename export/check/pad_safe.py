"""Whether a batch may be padded longer without changing a valid row: shown by the masks, and tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import nn

from ...models.masks import Causal, KeyPadding
from ..cases.draw import Case, lengthened
from ..cases.parity import tolerance_of
from ..cases.rows import VALID
from .backend import BackendError
from .checked import METADATA_VERSION
from .subject import Subject

SIDES = ("right", "left")


def pad_safety(subject: Subject, cases: Sequence[Case]) -> dict[str, Any]:
    """Return the ``maskport.pad_safe`` metadata: ok, the side ("right", "left" or "both") and why.

    It is ok on a side where the module's own mask expressions prove it and padding the cases longer there, with
    random tokens, moved no valid row of the file.
    """
    if not all(isinstance(label, str) for label in subject.layout.tokens) or not cases:
        return unknown_pad_safety("no token axis is free, so no batch can be padded longer")
    proven, reason = _proven(subject)
    moved = {side: _moved(subject, cases, side) for side in SIDES}
    sides = [side for side in SIDES if side in proven and not moved[side]]
    tried = "; ".join(
        f"padding longer at the {side} {moved[side] or f'moved no valid row in {len(cases)} cases'}" for side in SIDES
    )
    side = "both" if len(sides) == 2 else next(iter(sides), None)
    return {"version": METADATA_VERSION, "ok": side is not None, "side": side, "why": f"{reason}; {tried}"}


def unknown_pad_safety(why: str) -> dict[str, Any]:
    """Return the metadata of a file of which nothing is known."""
    return {"version": METADATA_VERSION, "ok": False, "side": None, "why": why}


def _proven(subject: Subject) -> tuple[tuple[str, ...], str]:
    """Return the sides on which the masks hide what is padded, and how that is known."""
    foreign = [name for name, part in subject.module.named_modules() if isinstance(part, nn.MultiheadAttention)]
    if not subject.masks or foreign:
        return (), "not proven: the module's attention doesn't carry mask expressions"
    hides = [
        any(mask.implies(KeyPadding(name, pad=subject.layout.inputs[name].pad or 0)) for name in subject.layout.masks)
        for mask in subject.masks
    ]
    if all(hides):
        return SIDES, f"every mask implies padding({', '.join(subject.layout.masks)})"
    if len(subject.layout.tokens) == 1 and all(
        hidden or mask.implies(Causal()) for hidden, mask in zip(hides, subject.masks, strict=True)
    ):
        return ("right",), "every mask hides padding or is causal"
    may = next(str(mask) for mask, hidden in zip(subject.masks, hides, strict=True) if not hidden)
    return (), f"not proven: the mask {may} may attend padding"


def _moved(subject: Subject, cases: Sequence[Case], side: str) -> str:
    """Return what padding at a side did to valid rows; empty if nothing."""
    for case in cases:
        longer = lengthened(case, subject.layout, subject.examples, side)
        try:
            before, after = subject.backend.run(case.inputs), subject.backend.run(longer.inputs)
        except BackendError:
            return f"failed at {longer.name}"
        for name, axes in subject.layout.outputs.items():
            kinds = case.rows.kinds(subject.layout, axes, before[name].shape)
            if kinds is None or after[name].ndim != before[name].ndim:
                return f"changed {name!r}, whose rows can't be told apart"
            tokens = [p for p, label in subject.layout.positions(axes).items() if label in subject.layout.tokens]
            part = after[name]
            for position in tokens:
                size = before[name].shape[position]
                indices = range(size) if side == "right" else range(part.shape[position] - size, part.shape[position])
                part = part.take(indices, position)
            if part.shape != before[name].shape:
                return f"changed the shape of {name!r}"
            error = _largest(before[name], part, kinds[VALID])
            if not error <= tolerance_of(before[name].dtype).value * max(1.0, _largest(before[name], 0, kinds[VALID])):
                return f"moved valid rows by {error:.2g}"
    return ""


def _largest(one: Any, two: Any, where: Any) -> float:
    apart = np.abs(one.astype(np.float64) - np.asarray(two).astype(np.float64))
    return float(np.max(apart, where=np.broadcast_to(where, apart.shape), initial=0.0))
