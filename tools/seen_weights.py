"""The weights of a file's attention, where they can be read from its graph: those of a Softmax and a product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ..export.errors import ProofFailed
from ..export.inspector import find_attention
from ..export.proof.side import Side, side_of
from .contracts.subject import Subject
from .shown import plural


@dataclass(frozen=True)
class Weights:
    """What gives weights.

    Attributes
    ----------
    side
        Runs the file, and gives them beside its outputs; None if there are none.
    names
        Of the values that hold them, by the attention's name, in the graph's order.
    """

    side: Side | None
    names: dict[str, str]

    def of(self, inputs: Mapping[str, np.ndarray], batch: int) -> dict[str, np.ndarray]:
        """Return which pairs have a weight above 0 in some head, by attention: bool [B, Q, K]; NaN is one, too.

        Raises
        ------
        BackendError
            If the file fails.
        """
        if self.side is None:
            return {}
        arrays = self.side.run(inputs)
        found = {}
        for site, name in self.names.items():
            array = arrays[name]
            if array.ndim >= 3 and array.size and array.shape[0] % batch == 0:
                # [B, H, Q, K] or [B*H, Q, K].
                found[site] = np.logical_not((array.reshape(batch, -1, *array.shape[-2:]) <= 0).all(axis=1))
        return found


def weights_of(subject: Subject) -> tuple[Weights, list[str]]:
    """Return what gives the weights of a file's attention, and why some has none."""
    work = subject.model.clone()
    found = find_attention(work, check=False)
    values = {found.names[site.node]: site.weights for site in found.sites if site.weights is not None}
    names = {site: str(value.name) for site, value in values.items()}
    notes = []
    if operators := [site for site in found.sites if site.weights is None]:
        kinds = ", ".join(dict.fromkeys(site.form for site in operators))
        notes.append(f"the weights of {plural(len(operators), 'attention')} are inside an operator: {kinds}")
    notes += [
        f"the attention at {other.node} was not understood" for other in found.reasons.values() if other.attention
    ]
    if not names:
        return Weights(None, {}), notes
    try:
        return Weights(_side(work, subject, names), names), notes
    except ProofFailed as error:
        return Weights(None, {}), [*notes, f"the weights could not be read: {error}"]


def _side(work: ir.Model, subject: Subject, names: Mapping[str, str]) -> Side:
    return side_of(work, "the file", outputs=[*subject.interface.hidden, *names.values()])
