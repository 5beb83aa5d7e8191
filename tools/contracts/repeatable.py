"""Two runs on the same inputs are the same: a file in which dropout was left has other outputs each time."""

from __future__ import annotations

import numpy as np

from ...export.check.backend import BackendError
from ..verdict import Contract
from . import noise
from .finding import Finding
from .subject import Subject
from .tokens import difference


def repeatable(subject: Subject) -> Contract:
    """Run the same inputs twice."""
    finding = Finding("repeatable", "it takes no inputs that were drawn")
    try:
        usual = subject.usual("ones")
        two = subject.run(usual[0].inputs) if usual is not None else {}
    except BackendError:
        return finding.contract()
    if usual is None:
        return finding.contract()
    one = usual[1]
    for name in subject.layout.outputs:
        worst = float(np.max(difference(one[name], two[name]), initial=0.0))
        why = (
            f"two runs on the same inputs differ by {worst:.2g} in {name!r}; export in evaluation mode, without dropout"
        )
        finding.note(one[name].size, worst, noise.same_shape(one), why)
    return finding.contract()
