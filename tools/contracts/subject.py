"""The file that contracts are tried on: what runs it, what its inputs are, and what is promised of its attention."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...export.cases.draw import Case, Size
from ...export.cases.layout import Label, Layout
from ...export.check.checked import ASSUMES_KEY
from ...export.inspector import find_attention, inspect
from ...export.load_model import load_model
from ...export.proof.compare import with_rows
from ...export.proof.granted import Assumes, is_granted
from ...export.proof.interface import Interface, hidden_tensors, interface_of
from ...export.proof.side import HERE, Place, Side, side_of
from ...export.tracing.traces import source_of
from ...models.masks import Mask
from .claim import Claim, claims_of
from .compared_ids import compared_ids

Model = str | os.PathLike[str] | bytes | ir.Model
Arrays = dict[str, np.ndarray]

# Of most cases: co-prime, unlike what anyone takes for an example, and as long as it takes to see a window.
USUAL = Size(3, 17, 11)


@dataclass(frozen=True)
class Subject:
    """A file that is ready to be tried.

    Attributes
    ----------
    model, side
        The file, and what runs it.
    interface
        Roles and axes of its inputs and outputs, and what values it takes.
    claims
        What is promised of its attention.
    read
        The masks that were read from its graph, by the attention's name; None for one that was not understood.
    sources
        The lines that attention was exported from, by its name, where the file says so.
    assumes
        What it takes for granted of its inputs: others are not tried.
    kept_ids
        Ids that the graph looks for, such as that of padding, by input: they are left where they are.
    seed
        Of everything that is drawn.
    """

    model: ir.Model
    side: Side
    interface: Interface
    claims: tuple[Claim, ...]
    read: dict[str, Mask | None]
    sources: dict[str, tuple[str, int]]
    assumes: Assumes
    kept_ids: dict[str, frozenset[int]]
    seed: int
    # Made anew for what runs otherwise or claims something else.
    _ran: dict[str, tuple[Case, Arrays]] = field(init=False, default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, given: Model, seed: int = 0, place: Place = HERE) -> Subject:
        """Load a file and read its attention.

        Raises
        ------
        InspectError
            If it is no ONNX model.
        ProofFailed
            If it can't be run.
        """
        model, _ = load_model(given)
        report = inspect(model)
        sites = find_attention(model.clone(), check=False).sites
        masks = [site.mask for site in report.sites]
        hidden = hidden_tensors(model.graph, masks)
        side = side_of(model, "the file", outputs=hidden, place=place)
        interface = interface_of(model, side, masks, hidden, seed)
        written = json.loads(model.metadata_props.get(ASSUMES_KEY, "{}")).get("assumes", [])
        read = [{"input": name, "check": check} for site in report.sites for name, check in site.assumes]
        nodes = {str(site.node.name): site.node for site in sites}
        lines = {site.name: source_of(nodes[site.node]) for site in report.sites if site.node in nodes}
        understood: dict[str, Mask | None] = {site.name: site.mask for site in report.sites}
        return cls(
            model,
            side,
            interface,
            tuple(claims_of(report, sites, interface.layout)),
            understood | {found.node: None for found in report.unlifted if found.attention},
            {name: line for name, line in lines.items() if line is not None},
            # What the graph computes can't be chosen.
            [entry for entry in (*written, *read) if entry["input"] in interface.layout.inputs],
            {str(value.name): found for value in model.graph.inputs if (found := compared_ids(value))},
            seed,
        )

    @property
    def layout(self) -> Layout:
        """Roles and axes."""
        return self.interface.layout

    @property
    def masks(self) -> list[Mask]:
        """The masks of the claims, each once."""
        return list(dict.fromkeys(claim.mask for claim in self.claims))

    @property
    def batch(self) -> int:
        """The largest batch that the file takes of those that are tried."""
        return 1 if self.interface.lone else 3

    def promised(self, claims: Sequence[Claim]) -> Subject:
        """Return the same file with other claims."""
        return replace(self, claims=tuple(claims))

    def run(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Run the file; what masks name and the file computes is given, too.

        Raises
        ------
        BackendError
            If it fails.
        """
        return self.side.run(inputs)

    def draw(self, size: Size, pattern: str, given: Mapping[Label, int] | None = None) -> Case | None:
        """Draw a case; None if the file doesn't grant its pattern. Its rows are told by :meth:`told`."""
        sizes = self.interface.sizes(size._replace(batch=min(size.batch, self.batch)), given)
        case = self.interface.draw(sizes, pattern, self.seed)
        return case if is_granted(case, self.layout, self.assumes) else None

    def usual(self, pattern: str) -> tuple[Case, Arrays] | None:
        """Draw a case of the usual size and run it, once for all contracts; its rows are told.

        None if the file doesn't grant its pattern.

        Raises
        ------
        BackendError
            If it fails.
        """
        if pattern not in self._ran:
            case = self.draw(USUAL, pattern)
            if case is None:
                return None
            outputs = self.run(case.inputs)
            self._ran[pattern] = self.told(case, outputs), outputs
        return self._ran[pattern]

    def told(self, case: Case, computed: Arrays) -> Case:
        """Return a case with its rows told: which are valid, padding, or without a key."""
        return with_rows(case, self.interface, self.masks, computed)

    def tokens(self, label: Label) -> dict[str, int]:
        """Return the inputs that hold a token axis' tokens, each with the place of that axis."""
        return {
            name: value.axes.index(label)
            for name, value in self.layout.inputs.items()
            if value.role == "tokens" and value.axes[:1] == (self.layout.batch,) and label in value.axes
        }

    def tensors(self, case: Case, computed: Arrays, mask: Mask) -> dict[str, Any]:
        """Return the tensors of a mask."""
        return {name: case.inputs.get(name, computed.get(name)) for name in mask.tensors}
