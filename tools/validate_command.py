"""``maskport validate``: from its arguments to a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..export.cases.draw import SIZES
from ..export.cases.patterns import NAMES
from ..runtime import Session
from .errors import ToolError
from .inputs import read_inputs
from .repro import Failing
from .screen import Screen
from .validation import QUICK, validate
from .verdict import Verdict

if TYPE_CHECKING:
    from .mutants import SelfTest

# About as many as there are.
CONTRACTS = 16


def validate_command(
    screen: Screen,
    candidate: Path,
    against: str | None,
    inputs: Path | None,
    expect: str | None,
    quick: bool,
    device: str,
    repro: Path | None = None,
) -> Verdict:
    """Load both sides and compare them, and hold the candidate to its contracts, with progress.

    The first case that fails is shrunk and written into the folder `repro`.

    Raises
    ------
    MaskportError, ExportError
        If a side or the inputs can't be loaded.
    """
    session = Session(candidate, device=device)
    with screen.progress("Hold to what its masks mean", CONTRACTS) as advance:
        promised = validate(candidate, expect=expect, quick=quick, on_contract=lambda contract: advance())
    if against is None:
        return promised
    examples: Any = None if inputs is None else read_inputs(inputs, session)
    reference: Any
    if Path(against).suffix == ".onnx":
        reference = against
    else:
        from .spec import load

        with screen.progress(f"Build {against}"):
            source = load(against)
        reference = source.module
        examples = source.example_inputs if examples is None else _tensors(examples)
    # At small sizes some patterns are the same, and run once.
    with screen.progress("Compare", len(QUICK if quick else SIZES) * len(NAMES)) as advance:
        compared = validate(
            candidate,
            reference,
            examples,
            quick=quick,
            device=device,
            on_case=lambda case: advance(),
            on_failure=None if repro is None else lambda failing: _write(screen, failing.shrunk(), repro, candidate),
        )
    return compared.with_contracts(promised.contracts)


def _write(screen: Screen, failing: Failing, folder: Path, candidate: Path) -> None:
    path = failing.write(folder, candidate)
    sizes = ", ".join(f"{label} {size}" for label, size in failing.case.sizes.items() if isinstance(label, str))
    screen.err.print(f"The smallest failing case, {sizes}, is in {path}", markup=False, soft_wrap=True)


def self_test_command(screen: Screen, candidate: Path) -> SelfTest:
    """Plant faults in the candidate and tell what catches them, with progress."""
    from .mutants import self_test
    from .mutants.mutations import MUTATIONS

    with screen.progress("Plant faults", len(MUTATIONS)) as advance:
        return self_test(candidate, on_mutant=lambda name: advance())


def _tensors(arrays: dict[str, Any]) -> dict[str, Any]:
    import torch

    tensors = {}
    for name, array in arrays.items():
        try:
            tensors[name] = torch.from_numpy(np.array(array, array.dtype.newbyteorder("=")))
        except TypeError as error:
            raise ToolError(f"input {name!r} is {array.dtype}, which PyTorch doesn't have") from error
    return tensors
