"""A file runs at all sizes that it declares, and gives outputs of those sizes."""

from __future__ import annotations

from ...export.cases.draw import SIZES, Size
from ...export.check.backend import BackendError
from ..verdict import FAILED, NOT_RUN, OK, Contract
from .subject import Subject

NAME = "lengths-free"


def lengths_free(subject: Subject) -> Contract:
    """Run sizes that are nobody's example."""
    layout, interface = subject.layout, subject.interface
    free = [label for label in (layout.batch, *layout.tokens) if isinstance(label, str)]
    if not free:
        return Contract(NAME, NOT_RUN, why="no batch and no length is free")
    if interface.lone:
        return Contract(NAME, FAILED, why=f"{layout.batch} is declared free, and it fails at any batch above 1")
    ran = []
    for size in SIZES:
        case = interface.draw(interface.sizes(size), "ones", subject.seed)
        try:
            outputs = subject.run(case.inputs)
        except BackendError as error:
            if _too_long(subject, size):
                continue
            reason = str(error).rpartition("Status Message: ")[2]
            return Contract(NAME, FAILED, why=f"it fails at {case.name}, which it declares free: {reason}")
        for name, axes in layout.outputs.items():
            wanted = [case.sizes.get(label, n) for label, n in zip(axes, outputs[name].shape, strict=True)]
            if list(outputs[name].shape) != wanted:
                why = f"at {case.name} {name!r} has the shape {list(outputs[name].shape)}, not {wanted}"
                return Contract(NAME, FAILED, why=why)
        ran.append(size)
    return Contract(NAME, OK, float(len(ran)), why=_rounded(interface.multiple))


def _too_long(subject: Subject, size: Size) -> bool:
    """Whether a size is over a bound that the file itself states."""
    limits = [int(str(entry["check"]).partition(":")[2]) for entry in subject.assumes if "length_le" in entry["check"]]
    return any(size.length > limit for limit in limits)


def _rounded(multiple: int) -> str | None:
    return None if multiple == 1 else f"lengths must be a multiple of {multiple}, which it doesn't declare"
