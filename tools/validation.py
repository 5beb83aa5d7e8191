"""A candidate against a reference: an eager module or another ONNX file, over sizes and padding patterns."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..export.cases.draw import Case
from ..export.cases.layout import Layout
from ..export.cases.parity import TOLERANCES
from ..export.load_model import load_model
from ..models.masks import Mask
from ..runtime import Session
from .child import TIMEOUT
from .child.session import ChildSession
from .contracts.weights import nan_weights
from .errors import ToolError
from .localising.first_difference import first_difference
from .parity.comparison import Comparison
from .parity.plan import Plan, plan_of
from .parity.reference import of_file, of_module, run_file
from .parity.repro import Failing
from .parity.rounding import Depth, Rounding
from .ranks import need_ranks
from .verdict import FAILED, NOT_RUN, OK, TWINS, Contract, Verdict

if TYPE_CHECKING:
    from torch import nn

Arrays = dict[str, np.ndarray]
File = str | os.PathLike | bytes


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
    timeout: float = TIMEOUT,
    tolerances: Mapping[str, float] | None = None,
    on_plan: Callable[[Plan], None] | None = None,
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
        Whether to try one size, with all padding patterns, instead of the whole plan.
    device
        Where files are run, each in a process of its own: one that ends it by a signal is wrong.
    seed
        Of everything that is drawn.
    timeout
        The longest that one run of a file may take, in seconds: longer is wrong, too.
    tolerances
        By an output's name or its element type: the largest difference allowed, per unit of the largest value (at least
        1). By default it follows from how far the reference is from its own run in float64, or where it can't be run
        so, from the depth of the candidate's graph: see `Verdict.tolerances`.
    on_plan, on_case, on_contract
        Called with the cases that were chosen, before each case, and after each contract.
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
        promised = contracts_of(
            candidate, expect, quick=quick, seed=seed, device=device, timeout=timeout, on_contract=on_contract
        )
    if against is None:
        return promised
    asked = tolerances or {}
    compared = _compare(
        candidate, against, example_inputs, quick, device, seed, timeout, asked, on_plan, on_case, on_failure
    )
    return compared.with_contracts(promised.contracts)


def _compare(
    candidate: str | os.PathLike[str] | bytes | Session,
    against: nn.Module | str | os.PathLike[str] | bytes | Session,
    example_inputs: Mapping[str, Any] | Sequence[Any] | None,
    quick: bool,
    device: str,
    seed: int,
    timeout: float,
    tolerances: Mapping[str, float],
    on_plan: Callable[[Plan], None] | None,
    on_case: Callable[[Case], None] | None,
    on_failure: Callable[[Failing], None] | None,
) -> Verdict:
    session = _session(candidate, device, timeout)
    if isinstance(candidate, File):
        need_ranks(candidate, session)
    sessions = [session]
    if isinstance(against, str | bytes | os.PathLike | Session):
        sessions.append(_session(against, device, timeout))
        model = None if isinstance(against, Session) else against
        reference = of_file(sessions[1], model, example_inputs)
    else:
        reference = of_module(against, example_inputs, session)
    layout, masks = reference.layout, reference.masks
    contract = _interface(session, layout, reference.examples, reference.outputs)
    if contract.status == FAILED:
        return Verdict((), (contract, Contract("parity", NOT_RUN, why="the inputs or outputs differ")), {})
    if unknown := [name for name in tolerances if name not in layout.outputs and name not in TOLERANCES]:
        raise ToolError(
            f"a tolerance is given for {unknown[0]!r}; give the name of an output ({', '.join(layout.outputs)}) or an "
            f"element type ({', '.join(TOLERANCES)})"
        )
    plan = plan_of(layout, masks, reference.lengths, quick, seed)
    if on_plan is not None:
        on_plan(plan)
    run = functools.partial(run_file, session)
    loaded = load_model(candidate)[0] if isinstance(candidate, File) else None
    rounding = Rounding(None if loaded is None else Depth.of(loaded), tolerances)
    comparison = Comparison(run, reference.run, layout, rounding, reference.precise)
    for case in plan.cases(layout, reference.examples, masks):
        if on_case is not None:
            on_case(case)
        comparison.compare(case)
    where: list[Contract] = []
    if failing := comparison.failing:
        if on_failure is not None:
            on_failure(Failing(failing[0], layout, masks, run, reference.run, comparison.limits))
        if isinstance(candidate, File) and not isinstance(against, Session):
            where = first_difference(candidate, against, failing, layout, reference.run)
    too_long = (Contract(one.name, NOT_RUN, why=one.why) for one in plan.not_run)
    kernels = [TWINS] if any(getattr(one, "twins", False) for one in sessions) else []
    weights = [] if loaded is None else nan_weights(loaded)
    contracts = (contract, *where, *weights, *comparison.contracts, *too_long, *kernels)
    return Verdict(comparison.checks, contracts, comparison.tolerances, plan=plan)


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


def _session(model: str | os.PathLike[str] | bytes | Session, device: str, timeout: float) -> Session:
    return model if isinstance(model, Session) else ChildSession(model, device, timeout=timeout)
