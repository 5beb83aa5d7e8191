"""Every mask among the inputs matters: changed, it moves some output."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...export.check.backend import BackendError
from ...export.check.perturb import changes
from ...export.proof.granted import in_words, is_granted
from ..verdict import FAILED, NOT_RUN, OK, Contract
from .subject import Subject
from .tokens import difference

SELECT = ("mask", "packing")
NAME = "input-matters"


def inputs_matter(subject: Subject) -> Iterator[Contract]:
    """Change one input after the other in several ways, until an output moves."""
    layout = subject.layout
    for name, value in layout.inputs.items():
        moved, tried = _moved(subject, name)
        if moved is not None:
            yield Contract(f"{NAME}/{name}", OK, moved)
        elif not tried:
            yield Contract(f"{NAME}/{name}", NOT_RUN, why="it takes no other value")
        elif granted := [entry for entry in subject.assumes if entry["input"] == name]:
            why = f"no output moved; the file takes for granted that {in_words(granted[0])}"
            yield Contract(f"{NAME}/{name}", NOT_RUN, why=why)
        elif value.role in SELECT:
            why = f"{tried} other values of {name} move no output: it has no effect"
            yield Contract(f"{NAME}/{name}", FAILED, 0.0, why)
        else:
            yield Contract(f"{NAME}/{name}", NOT_RUN, why=f"{tried} other values of it move no output")
    if not any(value.role in SELECT for value in layout.inputs.values()):
        yield Contract(NAME, NOT_RUN, why="the model has no mask as an input")


def _moved(subject: Subject, name: str) -> tuple[float | None, int]:
    """Return how far an output moved with an input, None for none, and how many values were tried."""
    tried = 0
    for pattern in ("ones", "right"):
        try:
            usual = subject.usual(pattern)
        except BackendError:
            continue
        if usual is None:
            continue
        case, before = usual
        for changed in changes(subject.layout, subject.interface.examples, (), case, name, subject.seed):
            if not is_granted(changed, subject.layout, subject.assumes):
                continue
            try:
                after = subject.run(changed.inputs)
            except BackendError:
                continue
            tried += 1
            apart = max(
                float(np.max(difference(before[output], after[output]), initial=0.0))
                for output in subject.layout.outputs
            )
            if apart > 0:
                return apart, tried
    return None, tried
