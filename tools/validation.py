"""A candidate against a reference: an eager module or another ONNX file, over sizes and padding patterns."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..export.cases.draw import SIZES, Case, Size, draw_cases, is_float
from ..export.cases.layout import Layout
from ..export.cases.parity import TOLERANCES, Tolerance, differences, tolerance_of
from ..export.cases.patterns import NAMES
from ..export.cases.rows import VALID
from ..export.errors import ExportError
from ..models.masks import Mask
from ..runtime import MaskportError, ModelError, Session
from .errors import Refused, ToolError
from .inputs import draw_inputs
from .model_layout import layout_of
from .repro import Failing
from .verdict import FAILED, NOT_RUN, OK, Check, Contract, Verdict

if TYPE_CHECKING:
    from torch import nn

Arrays = dict[str, np.ndarray]
Run = Callable[[Mapping[str, np.ndarray]], Arrays]
File = str | os.PathLike | bytes

# Roles of inputs that say which tokens are attended.
SELECT = ("mask", "packing")
# Where a row is longer than a window.
BEYOND = ("ones", "holes")
MAX_LENGTH = 2048
# The largest batch and the longest but one: enough to see a lost mask.
QUICK = (Size(3, 17, 11),)


def validate(
    candidate: str | os.PathLike[str] | bytes | Session,
    against: nn.Module | str | os.PathLike[str] | bytes | Session | None = None,
    example_inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    expect: str | Mask | None = None,
    contracts: bool | None = None,
    quick: bool = False,
    device: str = "cpu",
    seed: int = 0,
    tolerances: Mapping[str, float] | None = None,
    on_case: Callable[[Case], None] | None = None,
    on_contract: Callable[[Contract], None] | None = None,
    on_failure: Callable[[Failing], None] | None = None,
) -> Verdict:
    """Compare a candidate with a reference at many sizes and padding patterns, and hold it to what its masks mean.

    Valid rows must agree within the tolerance of their element type, and must not be NaN. Padding rows and rows without
    a key must be finite where the reference's are; how far they differ is told.

    Parameters
    ----------
    candidate
        Path or bytes of an ONNX file, or a session. Its ``maskport.io`` metadata tells its masks and axes; without it,
        they are taken from the names of its inputs.
    against
        The module that it was made from, or another ONNX file (for which PyTorch isn't needed); None for contracts
        alone.
    example_inputs
        Of the module: tensors by name, or in the order of its ``forward``'s parameters. Of a file: arrays by name; by
        default they are drawn. Their types are kept; values that are no tensors go to the module as they are.
    expect
        The mask that the candidate's self-attention must have: see :func:`contracts_of`.
    contracts
        Whether to try the contracts, which need no reference; by default where there is none, or a mask is expected.
    quick
        Whether to try one size instead of five and what is longer than the module's windows.
    device
        Where files are run.
    seed
        Of everything that is drawn.
    tolerances
        By an output's name or its element type: the largest difference allowed, per unit of the largest value of the
        row's output (at least 1), where it is not the default.
    on_case, on_contract
        Called before each case, and after each contract.
    on_failure
        Called with the first case on which valid rows differ: it can be shrunk, and written out with a script.

    Returns
    -------
    Verdict
        ``ok`` is true only if valid rows were compared (or contracts shown) and nothing failed.

    Raises
    ------
    MaskportError
        If the example inputs don't fit, or a file can't be loaded on the device.

    Examples
    --------
    >>> verdict = validate("encoder.onnx", against=encoder, example_inputs=inputs)  # doctest: +SKIP
    >>> verdict.ok, verdict.worst  # doctest: +SKIP
    (True, 1.2e-06)
    """
    promised = Verdict((), (), {})
    if contracts or (contracts is None and (against is None or expect is not None)):
        from .contracts import contracts_of

        if isinstance(candidate, Session):
            raise ToolError("contracts are read from the graph, which a session doesn't hold; give the file's path")
        promised = contracts_of(candidate, expect, quick=quick, seed=seed, on_contract=on_contract)
    if against is None:
        return promised
    compared = _compare(candidate, against, example_inputs, quick, device, seed, tolerances or {}, on_case, on_failure)
    return compared.with_contracts(promised.contracts)


def _compare(
    candidate: str | os.PathLike[str] | bytes | Session,
    against: nn.Module | str | os.PathLike[str] | bytes | Session,
    example_inputs: Mapping[str, Any] | Sequence[Any] | None,
    quick: bool,
    device: str,
    seed: int,
    tolerances: Mapping[str, float],
    on_case: Callable[[Case], None] | None,
    on_failure: Callable[[Failing], None] | None,
) -> Verdict:
    session = _session(candidate, device)
    reference: Run
    masks: Sequence[Mask] = ()
    windows: Sequence[tuple[int, str]] = ()
    if isinstance(against, str | bytes | os.PathLike | Session):
        other = _session(against, device)
        layout = layout_of(other)
        examples = _examples(example_inputs, other)
        contract = _interface(session, layout, examples, other.output_names)
        reference = _from_file(other)
        windows = () if isinstance(against, Session) else _windows(against)
    else:
        from .eager_reference import EagerReference

        eager = EagerReference(against, example_inputs, session.output_names)
        layout = layout_of(session)
        examples, masks, windows, reference = eager.examples, eager.masks, eager.windows, eager.run
        contract = _interface(session, layout, examples, session.output_names)
    if contract.status == FAILED:
        return Verdict((), (contract, Contract("parity", NOT_RUN, why="the inputs or outputs differ")), {})
    sizes = QUICK if quick else SIZES
    long, too_long = _beyond(windows, max(size.length for size in sizes), 0 if quick else MAX_LENGTH)
    if unknown := [name for name in tolerances if name not in layout.outputs and name not in TOLERANCES]:
        raise ToolError(
            f"a tolerance is given for {unknown[0]!r}; give the name of an output ({', '.join(layout.outputs)}) or an "
            f"element type ({', '.join(TOLERANCES)})"
        )
    validation = _Validation(session, layout, reference, tolerances)
    for case in (
        *draw_cases(layout, examples, masks, sizes, NAMES, seed),
        *draw_cases(layout, examples, masks, long, BEYOND, seed),
    ):
        if on_case is not None:
            on_case(case)
        validation.compare(case)
    where: list[Contract] = []
    if validation.failing is not None:
        run = functools.partial(_run_file, session)
        if on_failure is not None:
            on_failure(Failing(validation.failing, layout, masks, run, reference))
        if isinstance(candidate, File) and isinstance(against, File):
            where = _first_difference(candidate, against, validation.failing)
    return validation.verdict((contract, *where, *too_long))


def _first_difference(candidate: File, reference: File, case: Case) -> list[Contract]:
    """Return where two files part, if it can be told."""
    from ..export.check.backend import BackendError
    from .localise import first_apart

    try:
        told = first_apart(candidate, reference, case.inputs)
    except (BackendError, ExportError):
        # One of them can't be run node by node.
        return []
    return [Contract("first-difference", FAILED, why=f"{told}, at {case.name}")] if told else []


def _windows(model: str | os.PathLike[str] | bytes) -> list[tuple[int, str]]:
    """Return how far the windows reach that are read from a file, each with the mask that says so."""
    from ..export.inspector import InspectError, inspect

    try:
        sites = inspect(os.fspath(model), check=False).sites
    except InspectError:
        # Whether it is a model at all is for the session to say.
        return []
    masks = dict.fromkeys(site.mask for site in sites)
    reaches = [(max(leaf.window), f"the mask `{mask}`") for mask in masks for leaf in mask.leaves]
    return [(reach, why) for reach, why in reaches if reach > 0]


def _beyond(windows: Sequence[tuple[int, str]], tried: int, most: int) -> tuple[list[Size], list[Contract]]:
    """Return sizes at which rows are longer than the windows, and what is not run because it would be too long."""
    reaches = {reach: why for reach, why in windows if 2 * reach + 1 > tried}
    sizes = [Size(2, 2 * reach + 1, 11) for reach in reaches if 2 * reach + 1 <= most]
    too_long = [
        Contract(f"window/{reach}", NOT_RUN, why=f"no row was longer than {why}, so a lost window would not be seen")
        for reach, why in reaches.items()
        if 2 * reach + 1 > most and reach >= tried
    ]
    return sizes, too_long


class _Validation:
    """The checks and contracts of the cases so far."""

    def __init__(self, session: Session, layout: Layout, reference: Run, allowed: Mapping[str, float]) -> None:
        self.session, self.layout, self.reference, self.allowed = session, layout, reference, allowed
        self.checks: list[Check] = []
        self.failing: Case | None = None
        self.not_run: list[Contract] = []
        self.tolerances: dict[str, tuple[float, str]] = {}
        self.masks = [name for name, value in layout.inputs.items() if name in layout.masks or value.role in SELECT]
        self.effects: dict[str, float] = {}
        self.seen: set[str] = set()

    def compare(self, case: Case) -> None:
        """Run both sides on a case."""
        try:
            expected = self.reference(case.inputs)
        except Refused as error:
            self.not_run.append(Contract(f"parity/{case.name}", NOT_RUN, why=f"the reference failed: {error}"))
            return
        try:
            actual = _run_file(self.session, case.inputs)
        except MaskportError as error:
            self.checks.append(Check(f"parity/{case.name}", False, "error", 1.0, 0.0, VALID, why=str(error)))
            self.failing = self.failing or case
            return
        self._effect(case, expected)
        for name in self.layout.outputs:
            label = f"parity/{case.name}" + (f"/{name}" if len(self.layout.outputs) > 1 else "")
            found = self._compare(label, name, case, actual[name], expected[name])
            self.seen |= {name} if found else set()
            self.checks += found
            if any(check.rows == VALID and not check.ok for check in found):
                self.failing = self.failing or case

    def _compare(self, label: str, name: str, case: Case, actual: np.ndarray, expected: np.ndarray) -> list[Check]:
        if actual.shape != expected.shape:
            axes = sum(a != b for a, b in zip(actual.shape, expected.shape, strict=False))
            axes += abs(actual.ndim - expected.ndim)
            why = f"{list(actual.shape)}, the reference's is {list(expected.shape)}"
            return [Check(label, False, "shape", float(axes), 0.0, VALID, why=why)]
        if is_float(actual) and is_float(expected) and actual.dtype.itemsize < expected.dtype.itemsize:
            # The tolerance is that of the coarser type.
            expected = expected.astype(actual.dtype)
        tolerance = self._tolerance(name, expected.dtype)
        self.tolerances[expected.dtype.name] = (tolerance.value, tolerance.why)
        layout = Layout(self.layout.inputs, {name: self.layout.outputs[name]}, self.layout.batch, self.layout.tokens)
        kinds = case.rows.kinds(layout, layout.outputs[name], expected.shape)
        found = []
        for difference in differences(layout, case, {name: actual}, {name: expected}, tolerance):
            assert kinds is not None
            where = np.broadcast_to(kinds[difference.rows], expected.shape)
            one, two = actual[where], expected[where]
            nan = int(np.isnan(one).sum()) if is_float(one) else 0
            if difference.rows == VALID and (nan or difference.lost_nan):
                told = None if nan else "in the reference alone"
                found.append(Check(label, False, "nan", float(nan or difference.lost_nan), 0.0, VALID, why=told))
            elif difference.rows == VALID:
                found.append(Check(label, difference.ok, "max_abs", difference.error, difference.limit, VALID))
            else:
                bad = int((~np.isfinite(one) & np.isfinite(two)).sum()) if is_float(one) else 0
                found.append(Check(label, not bad, "non_finite", float(bad), 0.0, difference.rows, difference.error))
        return found

    def _tolerance(self, name: str, dtype: np.dtype) -> Tolerance:
        given = self.allowed.get(name, self.allowed.get(dtype.name))
        return tolerance_of(dtype) if given is None else Tolerance(given, "as asked for")

    def _effect(self, case: Case, expected: Arrays) -> None:
        """Note how far a mask changes the reference's valid rows: without that, parity would not miss the mask."""
        for name in self.masks:
            array = case.inputs[name]
            if self.effects.get(name, 0.0) > 0:
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
            self.effects[name] = max((d.error for d in moved if not d.ok), default=0.0)

    def verdict(self, before: Sequence[Contract]) -> Verdict:
        """Return what was found, after what was found before."""
        effects = [_effect_contract(name, self.effects.get(name, 0.0)) for name in self.masks]
        if not effects:
            effects = [Contract("mask-effect", NOT_RUN, why="the model has no mask as an input")]
        unseen = [
            Contract(f"parity/{name}", NOT_RUN, why="its rows could not be told valid or not")
            for name in self.layout.outputs
            if self.seen and name not in self.seen
        ]
        return Verdict(tuple(self.checks), (*before, *effects, *unseen, *self.not_run), self.tolerances)


def _effect_contract(name: str, effect: float) -> Contract:
    if effect > 0:
        return Contract(f"mask-effect/{name}", OK, effect)
    why = "nothing that was tried changed a valid row of the reference, so a lost mask would not be seen"
    return Contract(f"mask-effect/{name}", NOT_RUN, why=why)


def _run_file(session: Session, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Run a session on arrays by name; numbers with a fraction are brought to the type that it takes."""
    given = {}
    for declared in session.inputs:
        array, element = inputs[declared.name], declared.element
        if is_float(array) and element is not None and element.numpy is not None and element.numpy.kind == "f":
            array = array.astype(element.numpy)
        given[declared.name] = array
    return {name: np.asarray(array) for name, array in session.run(given).items()}


def _from_file(session: Session) -> Run:
    def run(inputs: Mapping[str, np.ndarray]) -> Arrays:
        try:
            return _run_file(session, inputs)
        except MaskportError as error:
            raise Refused(str(error)) from error

    return run


def _interface(session: Session, layout: Layout, examples: Arrays, outputs: Sequence[str]) -> Contract:
    parts = [
        f"the candidate {word} {kind} {', '.join(sorted(names))}"
        for kind, ours, theirs in (
            ("input", set(session.input_names), set(examples)),
            ("output", set(session.output_names), set(outputs)),
        )
        for word, names in (("has lost", theirs - ours), ("alone has", ours - theirs))
        if names
    ]
    parts += [
        f"input {name} has {len(value.axes)} axes, the reference's {examples[name].ndim}"
        for name, value in layout.inputs.items()
        if name in examples and examples[name].ndim != len(value.axes)
    ]
    return Contract("interface", FAILED if parts else OK, why="; ".join(parts) or None)


def _examples(example_inputs: Any, session: Session) -> Arrays:
    """Return the examples of a file that is the reference, in the order of its inputs."""
    if example_inputs is None:
        return draw_inputs(session, {})
    if not isinstance(example_inputs, Mapping):
        raise ToolError("example_inputs of a file must be a dict of arrays by input name")
    # The session knows best what its inputs are; whether it can run at this size is found out later.
    with contextlib.suppress(ModelError):
        session.run(example_inputs)
    return {name: np.asarray(example_inputs[name]) for name in session.input_names}


def _session(model: str | os.PathLike[str] | bytes | Session, device: str) -> Session:
    return model if isinstance(model, Session) else Session(model, device=device)
