"""Every fault that a model can have is planted in it, and what catches it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...export.cases.draw import Size
from ...export.check.backend import BackendError
from ...export.errors import InspectError, ProofFailed
from ...export.lowering.canonical import Site
from ...export.proof.side import side_of
from ...models.masks import Window
from ...runtime import MaskportError
from ..child import TIMEOUT
from ..child.place import ChildPlace
from ..child.session import ChildSession
from ..contracts.run import contracts_of_claims
from ..contracts.subject import Model, Subject
from ..errors import Crashed, ToolError
from ..validation import validate
from ..verdict import FAILED
from .mutations import MUTATIONS, TRACED_LENGTH, Mutation
from .plant import Ground

# What most people do: one batch without padding, and the tolerance of PyTorch's own verification of an export.
ONE_BATCH = Size(2, TRACED_LENGTH, 7)
RTOL, ATOL = 1e-3, 1e-5
EXAMPLE = Size(3, 13, 11)


@dataclass(frozen=True)
class Mutant:
    """One fault that was planted.

    Attributes
    ----------
    name, site
        Of the fault, and of the attention that has it.
    parity, contracts
        What caught it, in words; None if nothing did.
    one_batch
        Whether one batch without padding, compared with `numpy.allclose`, tells it from the original.
    equivalent
        Why nothing can: what it is the same as; None if it isn't.
    """

    name: str
    site: str
    parity: str | None
    contracts: str | None
    one_batch: bool
    equivalent: str | None = None

    @property
    def caught(self) -> bool:
        """Whether parity or the contracts caught it."""
        return self.parity is not None or self.contracts is not None

    @property
    def survived(self) -> bool:
        """Whether it is a fault that nothing caught."""
        return not self.caught and self.equivalent is None

    def to_json(self) -> dict[str, Any]:
        """Return it with JSON's types."""
        return vars(self) | {"caught": self.caught}


@dataclass(frozen=True)
class SelfTest:
    """What was planted in a file, in the table's order, and the faults that it can't have."""

    mutants: tuple[Mutant, ...]
    not_applicable: tuple[str, ...]

    @property
    def survivors(self) -> tuple[Mutant, ...]:
        """The faults that nothing caught."""
        return tuple(mutant for mutant in self.mutants if mutant.survived)

    @property
    def ok(self) -> bool:
        """Whether faults were planted, and each was caught or is none."""
        return bool(self.mutants) and not self.survivors

    def to_json(self) -> dict[str, Any]:
        """Return it as `maskport validate --self-test --json` prints it."""
        return {
            "format": 1,
            "ok": self.ok,
            "mutants": [mutant.to_json() for mutant in self.mutants],
            "not_applicable": list(self.not_applicable),
        }


def self_test(
    model: Model, *, seed: int = 0, timeout: float = TIMEOUT, on_mutant: Callable[[str], None] | None = None
) -> SelfTest:
    """Plant each fault in the first attention that can have it, and try to catch it by parity and by contracts.

    Parity compares with the untouched file; the contracts hold the fault to the masks of the untouched file, which
    stand for what its author declares.

    Raises
    ------
    ProofFailed
        If the model can't be run.
    ToolError
        If it is no model, no attention can be written anew, or the untouched file fails its own contracts.
    Crashed
        If the untouched file ends its process, or takes longer than `timeout` seconds for one run.
    """
    place = ChildPlace.on(timeout=timeout)
    try:
        test = _Test(Subject.of(model, seed, place), place)
        broken = test.broken(test.subject)
    except InspectError as error:
        raise ToolError(str(error)) from error
    except ProofFailed as error:
        if place.crashes:
            raise Crashed(place.crashes[0]) from error
        raise
    if place.crashes:
        raise Crashed(place.crashes[0])
    if broken:
        raise ToolError(f"the untouched file fails its own contracts: {broken}")
    grounds = [ground for ground in Ground.each(test.subject.model) if test.is_sound(ground)]
    if not grounds:
        raise ToolError(
            "no attention of the file can be written anew, so no fault can be planted; see maskport inspect"
        )
    found: list[Mutant] = []
    missing: list[str] = []
    for mutation in MUTATIONS:
        if on_mutant is not None:
            on_mutant(mutation.name)
        planted = ((ground, made) for ground in grounds if (made := ground.plant(mutation.change, mutation.rewrite)))
        ground, made = next(planted, (None, None))
        if ground is None or made is None:
            missing.append(mutation.name)
        else:
            found.append(test.tried(mutation, ground, *made))
    return SelfTest(tuple(found), tuple(missing))


class _Test:
    """The untouched file, and what is tried on each mutant of it."""

    def __init__(self, subject: Subject, place: ChildPlace) -> None:
        self.subject, self.place = subject, place
        self.reference = ChildSession(_bytes(subject.model), place.device, timeout=place.timeout)
        case = subject.draw(EXAMPLE, "ones")
        self.examples = case.inputs if case is not None else subject.interface.examples

    def is_sound(self, ground: Ground) -> bool:
        """Whether an attention that is written anew without a fault is what it was."""
        planted = ground.plant(lambda planted: planted)
        return planted is not None and not self._apart(planted[0]) and not self.broken(self._loaded(planted[0]))

    def tried(self, mutation: Mutation, ground: Ground, model: ir.Model, before: Site, after: Site) -> Mutant:
        """Try to catch a mutant."""
        same = _equivalent(mutation, ground, before, after)
        try:
            mutant = self._loaded(model)
            parity = self._apart(model)
        except (ProofFailed, MaskportError) as error:
            why = f"it doesn't load: {error}"
            return Mutant(mutation.name, before.name, why, why, True, same)
        return Mutant(mutation.name, before.name, parity, self.broken(mutant), self._in_one_batch(mutant), same)

    def _loaded(self, model: ir.Model) -> Subject:
        side = side_of(model, "the mutant", place=self.place)

        def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            # What masks name is what the untouched file computes.
            known = self.subject.run(inputs) if self.subject.interface.hidden else {}
            return {**known, **side.run(inputs)}

        return replace(self.subject, side=replace(side, run=run))

    def broken(self, subject: Subject) -> str | None:
        """Return the first contract of the untouched file that a subject breaks."""
        for contract in contracts_of_claims(subject, self.subject.claims):
            if contract.status == FAILED:
                return f"{contract.name}: {contract.why}"
        return None

    def _apart(self, model: ir.Model) -> str | None:
        session = ChildSession(_bytes(model), self.place.device, timeout=self.place.timeout)
        verdict = validate(session, self.reference, self.examples, seed=self.subject.seed)
        return str(verdict.failures[0]) if verdict.failures else None

    def _in_one_batch(self, mutant: Subject) -> bool:
        case = self.subject.draw(ONE_BATCH, "ones")
        if case is None:
            return False
        try:
            one, two = self.subject.run(case.inputs), mutant.run(case.inputs)
        except BackendError:
            return True
        return not all(
            one[name].shape == two[name].shape and np.allclose(two[name], one[name], RTOL, ATOL, equal_nan=True)
            for name in self.subject.layout.outputs
        )


def _equivalent(mutation: Mutation, ground: Ground, before: Site, after: Site) -> str | None:
    """Return why a mutant is no fault: its mask attends the same pairs, or what it changes is read by nobody."""
    if mutation.empty_rows_alone and ground.rows_are_replaced:
        return "a Where behind the attention takes the place of rows without a key"
    if mutation.empty_rows_alone and not before.cross and Window(0, 0).implies(before.mask):
        return f"no row is without a key: under `{before.mask}` each attends its own"
    changed_else = mutation.rewrite is not None or replace(after, mask=before.mask, tensors=before.tensors) != before
    if changed_else or str(before.mask) == str(after.mask):
        return None
    if before.mask.witness(after.mask, self_attention=not before.cross) is not None:
        return None
    return f"`{after.mask}` attends what `{before.mask}` does at all lengths and for all tensors"


def _bytes(model: ir.Model) -> bytes:
    return ir.to_proto(model).SerializeToString()
