"""The weights of a file's attention, where they can be read from its graph: those of a Softmax and a product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ...export.errors import ProofFailed
from ...export.inspector import find_claimed
from ...export.proof.side import HERE, Place, Side, side_of
from ..contracts.subject import Subject
from ..shown import plural


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


def weights_of(subject: Subject, place: Place = HERE) -> tuple[Weights, list[str]]:
    """Return what gives the weights of a file's attention, and why some has none."""
    work = subject.model.clone()
    found = find_claimed(work, check=False)
    values = {site.node: site.weights for site in found.sites}
    names: dict[str, str] = {}
    notes: list[str] = []
    forms: list[str] = []
    named = {node: site.name for node, site in found.reports.items()}
    named |= {node: other.node for node, other in found.reasons.items() if other.attention}
    for node, name in ((node, named[node]) for node in work.graph.all_nodes() if node in named):
        # Of one that was not understood, what its Softmax gives.
        value = values.get(node) or (node.outputs[0] if node.op_type == "Softmax" else None)
        # What is inside a loop is no value of the file.
        if value is not None and node.graph is work.graph:
            names[name] = str(value.name)
        else:
            forms.append(found.reports[node].form if node in found.reports else node.op_type)
    if forms:
        kinds = ", ".join(dict.fromkeys(forms))
        notes.append(f"the weights of {plural(len(forms), 'attention')} are inside an operator: {kinds}")
    if not names:
        return Weights(None, {}), notes
    try:
        return Weights(_side(work, subject, names, place), names), notes
    except ProofFailed as error:
        return Weights(None, {}), [*notes, f"the weights could not be read: {error}"]


def _side(work: ir.Model, subject: Subject, names: Mapping[str, str], place: Place) -> Side:
    return side_of(work, "the file", outputs=[*subject.interface.hidden, *names.values()], place=place)
