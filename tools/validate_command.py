"""``maskport validate``: from its arguments to a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .child import TIMEOUT
from .child.session import ChildSession
from .errors import ToolError
from .given_reference import given_reference
from .inputs import read_inputs
from .parity.repro import Failing
from .screen import Screen
from .validation import validate
from .validation_asked import Asked
from .verdict import Verdict

if TYPE_CHECKING:
    from .mutants import SelfTest
    from .parity.plan import Plan

# About as many as there are.
CONTRACTS = 16


def validate_command(screen: Screen, candidate: Path, asked: Asked) -> Verdict:
    """Load both sides and compare them, and hold the candidate to its contracts, with progress.

    Raises
    ------
    MaskportError, ExportError
        If a side or the inputs can't be loaded.
    """
    against, tolerances = asked.against, _tolerances(asked.tolerances)
    session = ChildSession(candidate, asked.device, timeout=asked.timeout)
    with screen.progress("Hold to what its masks mean", CONTRACTS) as advance:
        promised = validate(
            candidate,
            expect=asked.expect,
            quick=asked.quick,
            device=asked.device,
            seed=asked.seed,
            timeout=asked.timeout,
            on_contract=lambda contract: advance(),
        )
    if against is None:
        _draw(screen, promised, candidate, asked)
        return promised
    examples: Any = None if asked.inputs is None else read_inputs(asked.inputs, session)
    reference, examples = given_reference(screen, against, examples)
    failures: list[Failing] = []
    with screen.progress("Compare") as advance:

        def planned(plan: Plan) -> None:
            if asked.show_plan:
                screen.out.print(str(plan), markup=False)
            advance(len(plan.choices))

        compared = validate(
            candidate,
            reference,
            examples,
            quick=asked.quick,
            device=asked.device,
            seed=asked.seed,
            timeout=asked.timeout,
            tolerances=tolerances,
            on_plan=planned,
            on_case=lambda case: advance(),
            on_failure=(lambda failing: failures.append(failing.shrunk())) if asked.repro or asked.html else None,
        )
    verdict = compared.with_contracts(promised.contracts)
    if asked.repro is not None and failures:
        _write(screen, failures[0], asked.repro, candidate)
    _draw(screen, verdict, candidate, asked, reference, examples, *failures)
    return verdict


def _draw(screen: Screen, verdict: Verdict, candidate: Path, asked: Asked, *more: Any) -> None:
    if asked.html is not None:
        from .validation_page.draw import draw_validation

        draw_validation(screen, verdict, candidate, asked, asked.html, *more)


def _tolerances(given: Sequence[str]) -> dict[str, float]:
    found = {}
    for one in given:
        name, _, number = one.rpartition("=")
        try:
            found[name] = float(number)
        except ValueError:
            found[name] = math.nan
        if not name or not found[name] >= 0:
            raise ToolError(f"--tolerance {one!r} can't be read; give NAME=NUMBER, such as float16=1e-2 or logits=1e-3")
    return found


def _write(screen: Screen, failing: Failing, folder: Path, candidate: Path) -> None:
    path = failing.write(folder, candidate)
    sizes = ", ".join(f"{label} {size}" for label, size in failing.case.sizes.items() if isinstance(label, str))
    screen.err.print(f"The smallest failing case, {sizes}, is in {path}", markup=False, soft_wrap=True)


def self_test_command(screen: Screen, candidate: Path, timeout: float = TIMEOUT) -> SelfTest:
    """Plant faults in the candidate and tell what catches them, with progress."""
    from .mutants import self_test
    from .mutants.mutations import MUTATIONS

    # Whether it is a model at all is for ONNX Runtime to say.
    ChildSession(candidate, "cpu", timeout=timeout)
    with screen.progress("Plant faults", len(MUTATIONS)) as advance:
        return self_test(candidate, timeout=timeout, on_mutant=lambda name: advance())
