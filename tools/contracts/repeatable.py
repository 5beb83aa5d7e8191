"""Two runs on the same inputs are the same: a file in which dropout was left has other outputs each time."""

from __future__ import annotations

import numpy as np

from ...export.cases.draw import Size
from ...export.check.backend import BackendError
from ..verdict import Contract
from . import noise
from .finding import Finding
from .subject import Subject
from .tokens import difference

SIZE = Size(3, 17, 11)


def repeatable(subject: Subject) -> Contract:
    """Run the same inputs twice."""
    finding = Finding("repeatable", "it takes no inputs that were drawn")
    case = subject.draw(SIZE, "ones")
    if case is None:
        return finding.contract()
    try:
        one, two = subject.run(case.inputs), subject.run(case.inputs)
    except BackendError:
        return finding.contract()
    for name in subject.layout.outputs:
        worst = float(np.max(difference(one[name], two[name]), initial=0.0))
        why = (
            f"two runs on the same inputs differ by {worst:.2g} in {name!r}; export in evaluation mode, without dropout"
        )
        finding.note(one[name].size, worst, noise.same_shape(one), why)
    return finding.contract()
