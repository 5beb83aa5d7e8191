"""The sizes at which a file runs that fails at others: those of its example, baked in."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from ...runtime import MaskportError, Session
from ..child.place import ChildPlace
from ..child.session import ChildSession
from ..inputs import draw_inputs
from ..verdict import FAILED, Contract
from .lengths import NAME

BATCHES = (1, 2, 3, 4, 8)
LENGTHS = (*range(1, 33), 48, 64, 100, 128, 256, 512)
MOST = 1 << 22


def baked_sizes(model: ir.Model, place: ChildPlace) -> Contract | None:
    """Return what fails if a file runs at some batches and lengths that it declares free and not at others."""
    session = ChildSession(ir.to_proto(model).SerializeToString(), place.device, timeout=place.timeout)
    if session.twins:
        # They take their time at such lengths.
        return None
    ran = [(b, n) for b in BATCHES for n in LENGTHS if _runs(session, b, n)]
    if not ran:
        return None
    batches, lengths = sorted({b for b, _ in ran}), sorted({n for _, n in ran})
    parts = [
        f"of the {what} {_shown(tried)} it runs at {_shown(found)} alone"
        for what, found, tried in (("batches", batches, BATCHES), ("lengths", lengths, LENGTHS))
        if len(found) < len(tried)
    ]
    if not parts:
        return None
    return Contract(NAME, FAILED, why=f"sizes that it declares free are baked in: {', and '.join(parts)}")


def _runs(session: Session, batch: int, length: int) -> bool:
    shapes = {}
    for declared in session.inputs:
        wanted = (batch, *[length] * (len(declared.shape) - 1))[: len(declared.shape)]
        shapes[declared.name] = tuple(
            dim if isinstance(dim, int) else size for dim, size in zip(declared.shape, wanted, strict=True)
        )
    if any(math.prod(shape) > MOST for shape in shapes.values()):
        return False
    try:
        session.run(draw_inputs(session, {name: shape for name, shape in shapes.items() if shape}))
    except MaskportError:
        return False
    return True


def _shown(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) if len(sizes) <= 5 else f"{sizes[0]} to {sizes[-1]}"
