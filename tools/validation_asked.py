"""What a person asks of ``maskport validate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .child import TIMEOUT


@dataclass(frozen=True)
class Asked:
    """What was asked of a validation.

    Attributes
    ----------
    against, inputs, expect
        The reference (an .onnx file or a SPEC), a file of example inputs, the mask of self-attention.
    quick, device, seed
        As of `validate`.
    tolerances
        ``NAME=NUMBER``, the name being that of an output or of an element type.
    repro
        A folder for the smallest case that fails.
    timeout
        As of `validate`.
    html
        A page to write.
    show_plan
        Whether to print the cases before they are run.
    """

    against: str | None = None
    inputs: Path | None = None
    expect: str | None = None
    quick: bool = False
    device: str = "cpu"
    seed: int = 0
    tolerances: Sequence[str] = ()
    repro: Path | None = None
    timeout: float = TIMEOUT
    html: Path | None = None
    show_plan: bool = True
