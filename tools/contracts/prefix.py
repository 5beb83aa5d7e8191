"""The first rows of a causal model are those of a shorter sequence."""

from __future__ import annotations

import numpy as np

from ...export.cases.draw import Size
from ...export.check.backend import BackendError
from ...models.masks import Causal
from ..verdict import Contract
from . import noise
from .batch import cut
from .finding import Finding
from .subject import Subject
from .tokens import difference

SIZE = Size(2, 17, 11)
SHORTER = (1, 7, 16)


def prefix(subject: Subject) -> Contract:
    """Run the first tokens alone and compare their rows."""
    layout, finding = subject.layout, Finding("prefix", "not all attention is causal, on one axis that is free")
    label = layout.tokens[0] if len(layout.tokens) == 1 else None
    causal = all(c.queries == c.keys == label and c.mask.implies(Causal()) for c in subject.claims)
    case = subject.draw(SIZE, "ones")
    if not isinstance(label, str) or not subject.claims or not causal or case is None:
        return finding.contract()
    try:
        whole = subject.run(case.inputs)
    except BackendError:
        return finding.contract()
    for length in SHORTER:
        lengths = {label: subject.interface.sizes(SIZE._replace(length=length))[label]}
        inputs = {name: cut(array, layout.inputs[name].axes, lengths) for name, array in case.inputs.items()}
        try:
            shorter = subject.run(inputs)
        except BackendError as error:
            finding.fail(f"it fails on the first {length} tokens of {case.name}: {error}")
            continue
        for name, axes in layout.outputs.items():
            if axes.count(label) != 1:
                continue
            expected = cut(whole[name], axes, lengths)
            if shorter[name].shape != expected.shape:
                finding.fail(f"{name!r} has the shape {list(shorter[name].shape)} on the first {length} tokens")
                continue
            worst = float(np.max(difference(expected, shorter[name]), initial=0.0))
            why = f"the first {length} tokens of {case.name} alone differ by {worst:.2g} in {name!r}"
            finding.note(expected.size, worst, noise.other_shape(expected), why)
    return finding.contract()
