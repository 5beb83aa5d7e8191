"""The optimizer's questions, answered by measuring or by what was measured before."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ...models.masks import Mask
from ..errors import OptimizeError, ProofFailed
from ..lowering.asked import Asked
from ..lowering.canonical import Site, is_site
from ..lowering.costs import COSTS, Costs
from ..lowering.targets import Target
from .answer import Answer, Seconds
from .kept import keep, kept, machine
from .packed_or_not import compared, structure
from .site_costs import measured, relative
from .workload import Workload

if TYPE_CHECKING:
    from ..optimized import Optimized

__all__ = ["Tuner"]


@dataclass
class Tuner:
    """Measures on this machine, for one workload and one model.

    Attributes
    ----------
    workload : Workload
        The sizes.
    answers : list of Answer
        What was measured so far.
    notes : list of str
        What was not, and why.
    """

    workload: Workload
    answers: list[Answer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _known: dict[str, tuple[Seconds, bool]] = field(default_factory=dict)

    @classmethod
    def of(cls, workload: Workload, target: Target) -> Tuner:
        """Return a tuner for a target.

        Raises
        ------
        OptimizeError
            If it can't be measured here.
        """
        if target.provider != "cpu":
            raise OptimizeError(f"autotune measures on this machine's CPU, and the target is {target}; leave it out")
        return cls(workload)

    def costs(self, model: ir.Model, target: Target, padding_rows: str, assume: Collection[str]) -> Costs:
        """Return the costs of a model's canonical nodes, each kernel that takes one measured."""
        found: dict[str, dict[str, float]] = {}
        told: dict[str, Answer] = {}
        for node in model.graph:
            if not is_site(node):
                continue
            site = Site.of(node)
            question = self._question(_described(node, model, target, padding_rows, assume))
            try:
                measure = partial(measured, node, model, target, padding_rows, assume, self.workload)
                seconds, known = self._answered(question, measure)
            except RuntimeError as error:
                self.notes.append(f"the kernels of {site.name} were not measured: {error}")
                continue
            ratios = relative(seconds)
            found[site.name] = ratios
            what = f"{site.mask}, {site.q_heads} heads of {site.head_size}"
            names = (*told[str(question)].sites, site.name) if str(question) in told else (site.name,)
            told[str(question)] = Answer(what, names, seconds, min(ratios, key=ratios.__getitem__), known)
        self.answers += [answer for answer in told.values() if answer not in self.answers]
        return replace(COSTS, measured=found, shapes=self._shapes)

    def packing(self, source: ir.Model, options: dict[str, Any], build: Callable[[str], Optimized]) -> str:
        """Return whether padding is left out ("auto") or not ("none"): the first where both are about as fast.

        Parameters
        ----------
        source : ir.Model
            What inputs are drawn for.
        options : dict
            Those of the optimizer that change the result.
        build : callable
            From a packing to the result.
        """
        question = self._question({"packing": structure(source), **options})

        def measure() -> Seconds:
            packed, unpacked = build("auto"), build("none")
            if packed.passes == unpacked.passes:
                return {}
            masks = [Mask.parse(site.mask) for site in packed.sites]
            variants = {"auto": packed.model, "none": unpacked.model}
            seconds, left_out = compared(source, variants, masks, self.workload)
            self.notes.extend(left_out)
            return seconds

        try:
            seconds, known = self._answered(question, measure)
        except ProofFailed as error:
            self.notes.append(f"packing was not measured: {error}")
            return "auto"
        if not seconds:
            return "auto"
        ratios = relative(seconds)
        fastest = "auto" if ratios["auto"] == 1 else "none"
        self.answers.append(Answer("packing", (), seconds, fastest, known))
        return fastest

    @property
    def _shapes(self) -> str:
        return ", ".join(f"{batch}x{length}" for batch, length in self.workload.shapes)

    def _question(self, about: dict[str, Any]) -> dict[str, Any]:
        sizes = {"shapes": self._shapes, "fill": self.workload.fill}
        return {"machine": machine(), "workload": sizes, "about": about}

    def _answered(self, question: dict[str, Any], measure: Callable[[], Seconds]) -> tuple[Seconds, bool]:
        key = str(question)
        if key not in self._known:
            found = kept(question)
            self._known[key] = (measure(), False) if found is None else (found, True)
            if found is None and (why := keep(question, self._known[key][0])) is not None and why not in self.notes:
                self.notes.append(why)
        return self._known[key]


def _described(
    node: ir.Node, model: ir.Model, target: Target, padding_rows: str, assume: Collection[str]
) -> dict[str, Any]:
    """Return all that decides how a node can be lowered, and how long it takes: not its name."""
    asked = Asked.of(node, target.dtype, model.opset_imports.get("", 0))
    attributes = {name: str(value) for name, value in asked.site.attributes().items() if name != "name"}
    operands = [
        None if value is None else [str(value.dtype), str(value.shape), value.is_graph_input()] for value in node.inputs
    ]
    options = {"dtype": asked.dtype, "opset": asked.opset, "padding_rows": padding_rows, "assume": sorted(assume)}
    return {"site": attributes, "operands": operands, "outputs": len(node.outputs), **options}
