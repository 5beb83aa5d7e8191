"""A candidate and its reference on one case after the other: what is noted of each, and what it comes to in the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...export.cases.draw import Case, is_float
from ...export.cases.layout import Layout
from ...export.cases.parity import Tolerance, differences
from ...export.cases.rows import VALID
from ...runtime import MaskportError
from ..errors import Crashed, Refused
from ..verdict import FAILED, NOT_RUN, OK, Check, Contract
from .metrics import metrics_of
from .rounding import Rounding

Arrays = dict[str, np.ndarray]
Run = Callable[[Mapping[str, np.ndarray]], Arrays]

# Roles of inputs that say which tokens are attended.
SELECT = ("mask", "packing")
# The reference is run in float64, too, on cases of as many tokens: rounding is as large in short rows as in long ones.
MEASURED_TOKENS = 64
# Of one unit: what is left of a limit is the largest value.
PER_UNIT = Tolerance(1.0, "per unit")


@dataclass(frozen=True)
class Precise:
    """A reference in other precisions.

    Attributes
    ----------
    own
        In the element type of the candidate; None where that is its own.
    double
        In float64.
    """

    own: Run | None
    double: Run


@dataclass(frozen=True)
class _Compared:
    """A difference of valid rows, whose limit is known in the end."""

    check: Check
    case: Case
    output: str
    dtype: str


class Comparison:
    """Both sides, and what was noted of the cases so far.

    Parameters
    ----------
    candidate, reference
        What runs them. The candidate fails by `MaskportError`, the reference refuses by `Refused`.
    layout
        Axes of their inputs and outputs.
    rounding
        What limits come from; it is told the reference's errors.
    precise
        By the element type of the candidate's outputs, what runs the reference in other precisions; None if nothing
        can.
    """

    def __init__(
        self,
        candidate: Run,
        reference: Run,
        layout: Layout,
        rounding: Rounding,
        precise: Callable[[str], Precise | None],
    ) -> None:
        self.candidate, self.reference, self.layout, self.rounding = candidate, reference, layout, rounding
        self.masks = [name for name, value in layout.inputs.items() if name in layout.masks or value.role in SELECT]
        self._precise_of = precise
        self._precise: dict[str, Precise | None] = {}
        self._found: list[_Compared] = []
        self._not_run: list[Contract] = []
        self._effects: dict[str, float] = {}
        self._seen: set[str] = set()

    def compare(self, case: Case) -> None:
        """Run both sides on a case."""
        try:
            expected = self.reference(case.inputs)
        except Refused as error:
            # Where the reference ends its process, the candidate was not tried either.
            status: Literal["failed", "not run"] = FAILED if isinstance(error.__cause__, Crashed) else NOT_RUN
            self._not_run.append(Contract(f"parity/{case.name}", status, why=f"the reference failed: {error}"))
            return
        try:
            actual = self.candidate(case.inputs)
        except MaskportError as error:
            check = Check(f"parity/{case.name}", False, "error", 1.0, 0.0, VALID, why=str(error))
            self._found.append(_Compared(check, case, "", ""))
            return
        self._effect(case, expected)
        self._measure(case, actual, expected)
        for name in self.layout.outputs:
            label = f"parity/{case.name}" + (f"/{name}" if len(self.layout.outputs) > 1 else "")
            found = self._differences(label, name, case, actual[name], expected[name])
            self._seen |= {name} if found else set()
            # The tolerance is that of the coarser type.
            coarser = min(actual[name].dtype, expected[name].dtype, key=lambda dtype: dtype.itemsize)
            dtype = coarser if is_float(expected[name]) else expected[name].dtype
            self._found += [_Compared(check, case, name, dtype.name) for check in found]

    def _differences(self, label: str, name: str, case: Case, actual: np.ndarray, expected: np.ndarray) -> list[Check]:
        if actual.shape != expected.shape:
            axes = sum(a != b for a, b in zip(actual.shape, expected.shape, strict=False))
            axes += abs(actual.ndim - expected.ndim)
            why = f"{list(actual.shape)}, the reference's is {list(expected.shape)}"
            return [Check(label, False, "shape", float(axes), 0.0, VALID, why=why)]
        if is_float(actual) and is_float(expected) and actual.dtype.itemsize < expected.dtype.itemsize:
            expected = expected.astype(actual.dtype)
        layout = replace(self.layout, outputs={name: self.layout.outputs[name]})
        kinds = case.rows.kinds(layout, layout.outputs[name], expected.shape)
        found = []
        for difference in differences(layout, case, {name: actual}, {name: expected}, PER_UNIT):
            assert kinds is not None
            where = np.broadcast_to(kinds[difference.rows], expected.shape)
            one, two = actual[where], expected[where]
            nan = int(np.isnan(one).sum()) if is_float(one) else 0
            if difference.rows == VALID and (nan or difference.lost_nan):
                told = None if nan else "in the reference alone"
                found.append(Check(label, False, "nan", float(nan or difference.lost_nan), 0.0, VALID, why=told))
            elif difference.rows == VALID:
                metrics = metrics_of(actual, expected, where)
                found.append(Check(label, True, "max_abs", difference.error, difference.limit, VALID, metrics=metrics))
            else:
                bad = int((~np.isfinite(one) & np.isfinite(two)).sum()) if is_float(one) else 0
                found.append(Check(label, not bad, "non_finite", float(bad), 0.0, difference.rows, difference.error))
        return found

    def _measure(self, case: Case, actual: Arrays, expected: Arrays) -> None:
        """Note how far the reference is from its own run in float64."""
        sizes = [case.sizes.get(label, 1) for label in (self.layout.batch, *self.layout.tokens[:1])]
        floats = [array.dtype for array in actual.values() if is_float(array)]
        if not floats or int(np.prod(sizes)) > MEASURED_TOKENS:
            return
        coarsest = min(floats, key=lambda dtype: (dtype.itemsize, dtype.name)).name
        if coarsest not in self._precise:
            self._precise[coarsest] = self._precise_of(coarsest)
        precise = self._precise[coarsest]
        if precise is None:
            return
        try:
            exact = precise.double(case.inputs)
            own = expected if precise.own is None else precise.own(case.inputs)
        except Refused:
            # What refuses one case refuses the next.
            self._precise[coarsest] = None
            return
        names = [name for name, array in exact.items() if is_float(array) and own[name].shape == array.shape]
        layout = replace(self.layout, outputs={name: self.layout.outputs[name] for name in names})
        for difference in differences(layout, case, own, exact, PER_UNIT):
            if difference.rows == VALID:
                self.rounding.measured(difference.output, difference.error / difference.limit)

    def _effect(self, case: Case, expected: Arrays) -> None:
        """Note how far a mask changes the reference's valid rows: without that, parity would not miss the mask."""
        for name in self.masks:
            array = case.inputs[name]
            if self._effects.get(name, 0.0) > 0:
                continue
            # A hidden token is shown; where nothing hides tokens, all are put together with the first.
            pad = self.layout.inputs[name].pad
            hidden = array == pad if pad is not None else np.ones_like(array, bool)
            kept = array[~hidden] if pad is not None else array.reshape(-1)
            if not kept.size:
                continue
            shown = np.where(hidden, kept[0], array)
            if np.array_equal(shown, array):
                continue
            try:
                changed = self.reference({**case.inputs, name: shown.astype(array.dtype)})
            except Refused:
                continue
            moved = [d for d in differences(self.layout, case, changed, expected) if d.rows == VALID]
            self._effects[name] = max((d.error for d in moved if not d.ok), default=0.0)

    @property
    def checks(self) -> tuple[Check, ...]:
        """What was found, with the limits that all cases together set."""
        return tuple(self._limited(found) for found in self._found)

    def _limited(self, found: _Compared) -> Check:
        if found.check.metric != "max_abs":
            return found.check
        limit = self.rounding.tolerance(found.output, found.dtype).value * found.check.limit
        return replace(found.check, limit=limit, ok=found.check.value <= limit)

    @property
    def failing(self) -> list[Case]:
        """The cases on which valid rows differ, or the candidate fails: in the order in which they were run."""
        failed = {found.case.name: found.case for found in self._found if self._fails(found)}
        return list(failed.values())

    def _fails(self, found: _Compared) -> bool:
        return found.check.rows == VALID and not self._limited(found).ok

    @property
    def _dtypes(self) -> dict[str, str]:
        return {found.output: found.dtype for found in self._found if found.check.metric == "max_abs"}

    @property
    def limits(self) -> dict[str, Tolerance]:
        """The limit of each output of floating point that was compared, per unit of the largest value."""
        return {name: self.rounding.tolerance(name, dtype) for name, dtype in self._dtypes.items()}

    @property
    def tolerances(self) -> dict[str, tuple[float, str]]:
        """The limits as a person reads them: by element type, and by output where they are not the same."""
        named, limits = self._dtypes, self.limits
        alike = {dtype: {limits[name] for name in named if named[name] == dtype} for dtype in named.values()}
        return {
            (dtype if len(alike[dtype]) == 1 else f"{name} ({dtype})"): (limits[name].value, limits[name].why)
            for name, dtype in named.items()
        }

    @property
    def contracts(self) -> tuple[Contract, ...]:
        """What was shown beyond single cases, and what could not be run."""
        effects = [_effect_contract(name, self._effects.get(name, 0.0)) for name in self.masks]
        if not effects:
            effects = [Contract("mask-effect", NOT_RUN, why="the model has no mask as an input")]
        unseen = [
            Contract(f"parity/{name}", NOT_RUN, why="its rows could not be told valid or not")
            for name in self.layout.outputs
            if self._seen and name not in self._seen
        ]
        chosen = [
            Contract(
                f"rounding/{name}",
                NOT_RUN,
                why=f"the reference is {error:.2g} of the largest value from its own run in float64: where rounding "
                "turns a choice, such as the expert of a token, no limit tells right from wrong",
            )
            for name, dtype in self._dtypes.items()
            if (error := self.rounding.beyond(name, dtype)) is not None
        ]
        return (*effects, *unseen, *chosen, *self._not_run)


def _effect_contract(name: str, effect: float) -> Contract:
    if effect > 0:
        return Contract(f"mask-effect/{name}", OK, effect)
    why = "nothing that was tried changed a valid row of the reference, so a lost mask would not be seen"
    return Contract(f"mask-effect/{name}", NOT_RUN, why=why)
