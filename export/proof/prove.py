"""A source and what was made of it, run side by side: what is run, in which order, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...models.masks import Mask
from ..cases.draw import Case
from ..cases.layout import Layout
from ..cases.parity import TOLERANCES
from ..cases.rows import VALID
from ..check.backend import BackendError
from ..check.checked import Checked, CheckedCase
from ..errors import ProofFailed
from .compare import PADDING_ROWS, Apart, Arrays, compare, is_pooled, rows_apart, with_rows
from .granted import Assumes, in_words, is_granted
from .interface import Interface, hidden_tensors, interface_of
from .plan import mains, plan, weights_of
from .pooled import Pooled, without_rows
from .record import Proof
from .side import CPU, Side, side_of

AGAINST = "the source file, its graph as it is written"
EMPTY_BATCH = "an operator may end the process on an empty batch"
# Real tokens that a mask of integers marks with other numbers than 1.
OTHER_NUMBERS = (1, 2)


def prove(
    source: ir.Model,
    result: ir.Model,
    *,
    padding_rows: str = "any",
    masks: Sequence[Mask] = (),
    assumes: Assumes = (),
    dtype: str | None = None,
    seed: int = 0,
) -> Proof:
    """Run a source and what was made of it on the same inputs, and compare their rows.

    Parameters
    ----------
    source, result : ir.Model
        Both are left as they are. Roles and axes of the inputs come from the source's ``maskport.io``, else from
        the masks, the graph and a trial run.
    padding_rows : str
        What the result may do to rows that are no real token: "any" (finite), "zero" or "keep".
    masks : sequence of Mask
        Those of the source's attention: they say which rows have no key. Tensors that they name are inputs of the
        source or computed by a node of its graph.
    assumes : sequence of dict
        What the result takes for granted, as in ``maskport.assumes``; inputs that break it are not tried. Facts that
        the masks themselves take for granted belong here, too.
    dtype : str or None
        What the result computes in, if that is coarser than its outputs.
    seed : int
        Of everything that is drawn.

    Returns
    -------
    Proof

    Raises
    ------
    ProofFailed
        If the result differs, fails where the source doesn't, or can't be run: the message names the output, the
        case, the rows, the difference and what it may be.
    """
    if padding_rows not in PADDING_ROWS:
        raise ValueError(f"padding_rows is {padding_rows!r}; give one of {', '.join(PADDING_ROWS)}")
    _check_names(source, result)
    hidden = hidden_tensors(source.graph, masks)
    reference = side_of(source, "the source", as_written=True, outputs=hidden)
    candidate = side_of(result, "the result")
    interface = interface_of(source, reference, masks, hidden, seed)
    run = _Run(interface, reference, candidate, masks, assumes, padding_rows, dtype, seed)
    checked = candidate.checked if reference.checked == CPU else reference.checked
    weights = weights_of(source.graph)
    for main in mains(interface, weights, checked):
        if run.takes(interface.draw(interface.sizes(main), "ones", seed)):
            break
    planned = plan(interface, masks, weights, checked, main)
    run.record.not_run += [*planned.left_out, ("batch=0", EMPTY_BATCH)]
    for sizes, pattern in planned.cases:
        run.compare(interface.draw(sizes, pattern, seed), pattern)
    holes = interface.draw(interface.sizes(main), "holes", seed)
    run.compare_other_numbers(holes)
    run.note_effects(holes)
    return Proof(checked, padding_rows, run.finish())


def _check_names(source: ir.Model, result: ir.Model) -> None:
    for what in ("inputs", "outputs"):
        theirs, ours = ([value.name for value in getattr(model.graph, what)] for model in (source, result))
        if theirs != ours:
            raise ProofFailed(f"the result has the {what} {', '.join(map(str, ours))}, the source {theirs}")


class _Run:
    """The cases so far."""

    def __init__(
        self,
        interface: Interface,
        reference: Side,
        candidate: Side,
        masks: Sequence[Mask],
        assumes: Assumes,
        padding_rows: str,
        dtype: str | None,
        seed: int,
    ) -> None:
        self.interface, self.reference, self.candidate = interface, reference, candidate
        self.masks, self.assumes, self.padding_rows, self.dtype = masks, assumes, padding_rows, dtype
        self.pooled = Pooled(interface, reference, seed)
        self.record = Checked(candidate.how, seed, against=AGAINST)
        self.seen: set[tuple[Any, ...]] = set()
        self.compared: set[str] = set()
        self.left_open: set[str] = set()
        self.dtypes: set[str] = set()

    def takes(self, case: Case) -> bool:
        """Whether the source can be run at a case's sizes."""
        try:
            self.reference.run(case.inputs)
        except BackendError:
            return False
        return True

    def compare(self, case: Case, pattern: str) -> None:
        """Run both sides on a case, if it keeps to what is granted and is not another's equal.

        Raises
        ------
        ProofFailed
            If they differ.
        """
        layout = self.interface.layout
        key = (*case.sizes.items(), *(array.tobytes() for name, array in case.inputs.items() if _masks(layout, name)))
        if key in self.seen or not is_granted(case, layout, self.assumes):
            return
        self.seen.add(key)
        if "mask=" not in case.name and any(value.role == "mask" for value in layout.inputs.values()):
            case = replace(case, name=f"{case.name},mask={pattern}")
        try:
            expected = self.reference.run(case.inputs)
        except BackendError as error:
            self.record.not_run.append((case.name, f"the source itself can't: {error}"))
            return
        try:
            actual = self.candidate.run(case.inputs)
        except BackendError as error:
            raise ProofFailed(f"at {case.name} the result fails, and the source doesn't: {error}") from error
        case = with_rows(case, self.interface, self.masks, expected)
        case, found = self._without_padding_readers(case, actual, expected)
        wrong = [apart for apart in found if apart.why is not None]
        if wrong:
            raise ProofFailed(_told(case, wrong[0]))
        valid = [apart for apart in found if apart.rows == VALID]
        self.compared |= {apart.output for apart in valid}
        self.dtypes |= {actual[name].dtype.name for name in layout.outputs}
        self.record.cases.append(CheckedCase(case.name, max((apart.error for apart in valid), default=None)))

    def compare_other_numbers(self, case: Case) -> None:
        """Compare a case whose masks of integers mark real tokens with other numbers than 1, too."""
        inputs = dict(case.inputs)
        rng = np.random.default_rng([self.record.seed, 2])
        for name in self.interface.layout.masks:
            value, array = self.interface.layout.inputs[name], inputs[name]
            if value.role == "mask" and value.pad == 0 and array.dtype.kind in "iu":
                inputs[name] = (array != 0) * rng.choice(OTHER_NUMBERS, array.shape).astype(array.dtype)
        self.compare(replace(case, name=f"{case.name},marked by 1 and 2", inputs=inputs), case.pattern)

    def note_effects(self, case: Case) -> None:
        """Note the masks that change no valid row of the source when they hide nothing: a loss would not be seen."""
        layout = self.interface.layout
        for name in layout.masks:
            value = layout.inputs[name]
            if value.role != "mask":
                continue
            shown = np.full_like(case.inputs[name], int(value.pad == 0))
            try:
                before, after = (self.reference.run({**case.inputs, name: mask}) for mask in (case.inputs[name], shown))
            except BackendError:
                continue
            found = compare(layout, with_rows(case, self.interface, self.masks, before), after, before, "keep", None)
            if all(apart.why is None for apart in found if apart.rows == VALID):
                self.record.notes.append(
                    f"nothing that was tried shows an effect of {name!r}, so its loss would not be seen"
                )

    def _without_padding_readers(self, case: Case, actual: Arrays, expected: Arrays) -> tuple[Case, list[Apart]]:
        """Compare a case; rows of outputs that read padding in the source count only where padding is kept."""
        layout = self.interface.layout
        found = compare(layout, case, actual, expected, self.padding_rows, self.dtype)
        for apart in [apart for apart in found if apart.why is not None and apart.rows == VALID]:
            name = apart.output
            if self.padding_rows == "keep" or not is_pooled(layout, name) or actual[name].shape != expected[name].shape:
                continue
            reads = self.pooled.reads_padding(name, case)
            if not reads.any():
                continue
            limit = apart.limit if np.isfinite(apart.limit) else 0.0
            kept = rows_apart(layout, case, name, actual[name], expected[name], limit) & ~reads
            if not kept.any():
                alone = replace(layout, outputs={name: layout.outputs[name]})
                again = compare(alone, without_rows(case, reads), actual, expected, self.padding_rows, self.dtype)
                found = [other for other in found if other.output != name] + again
                self.left_open.add(name)
        return case, found

    def finish(self) -> Checked:
        """Return what was found.

        Raises
        ------
        ProofFailed
            If no valid row was compared.
        """
        record, layout = self.record, self.interface.layout
        if record.worst is None:
            reasons = "; ".join(dict.fromkeys(why for _, why in record.not_run))
            raise ProofFailed(f"no valid row of source and result could be compared: {reasons}")
        record.notes += [f"inputs were such that {in_words(entry)}" for entry in self.assumes]
        record.notes += [
            f"rows of {name!r} that read padding in the source, whatever it is padded with, were not compared"
            for name in sorted(self.left_open)
        ]
        record.notes += [f"{name!r} was not compared: its rows can't be told apart" for name in layout.outputs
                         if name not in self.compared]  # fmt: skip
        record.notes += [f"twins: {said}" for side in (self.reference, self.candidate) for said in side.warned]
        names = dict.fromkeys([*sorted(self.dtypes), *([self.dtype] if self.dtype else [])])
        limits = {name: TOLERANCES[name] for name in names if name in TOLERANCES}
        record.limits = {name: {"per_unit": limit.value, "why": limit.why} for name, limit in limits.items()}
        return record


def _masks(layout: Layout, name: str) -> bool:
    return name in layout.masks or layout.inputs[name].role == "mask"


def _told(case: Case, apart: Apart) -> str:
    rows = {"valid": "valid rows", "padding": "padding rows", "empty": "rows without a key"}[apart.rows]
    figures = f" by {apart.error:.2g} (allowed: {apart.limit:.2g})" if np.isfinite(apart.limit) else ""
    return f"at {case.name} {apart.output!r} {apart.why}{figures} on {rows}"
