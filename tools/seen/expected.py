"""What is expected of a file's attention: declared, read from its reference, or read from itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...export.cases.draw import is_float
from ...export.proof.side import HERE, Place
from ...models.masks import Mask
from ..contracts.claim import with_inputs
from ..contracts.expected import declared, parse_expected
from ..contracts.subject import Arrays, Model, Subject

Run = Callable[[Mapping[str, np.ndarray]], Arrays]


@dataclass(frozen=True)
class Expected:
    """A file, and what is expected of it.

    Attributes
    ----------
    own
        The file.
    subject
        The same with what is expected of its attention, or its reference, run by the file.
    told
        Where that is from, in words.
    run
        A reference of which is measured what is expected; None where masks say it.
    """

    own: Subject
    subject: Subject
    told: str
    run: Run | None = None


def expected_of(
    own: Subject, expect: str | Mask | None, reference: Model | Run | None, place: Place = HERE
) -> Expected:
    """Return what is expected: of a declared mask, of the reference's masks, of the reference, or of the file's masks.

    Raises
    ------
    InspectError, ProofFailed, ToolError
        If a declared mask isn't one of the file's inputs, or the reference can't be read or run.
    """
    if expect is not None:
        mask = parse_expected(str(expect), own)
        subject = own.promised(with_inputs(declared(own, mask), own.layout))
        return Expected(own, subject, f"`{mask}`, as declared, where an attention is within its axis")
    held = own.promised(with_inputs(own.claims, own.layout))
    if reference is None:
        return Expected(own, held, "the masks that were read from the file, and the padding that its inputs declare")
    if callable(reference):
        return Expected(own, held, "what the reference itself depends on, measured in the same way", reference)
    theirs = Subject.of(reference, own.seed, place)
    theirs = theirs.promised(with_inputs(theirs.claims, theirs.layout))
    return Expected(own, _run_by(own, theirs), "the masks that were read from the reference")


def _run_by(own: Subject, theirs: Subject) -> Subject:
    """Return a reference that is run by the file."""

    def run(inputs: Mapping[str, np.ndarray]) -> Arrays:
        # What masks name is what the reference computes.
        known = theirs.run(inputs) if theirs.interface.hidden else {}
        return {**known, **own.run(cast(own, inputs))}

    kept = {
        name: theirs.kept_ids.get(name, frozenset()) | own.kept_ids.get(name, frozenset())
        for name in theirs.layout.inputs
    }
    return replace(
        theirs, side=replace(own.side, run=run), assumes=[*theirs.assumes, *own.assumes], kept_ids=kept, read=own.read
    )


def cast(subject: Subject, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Return numbers with a fraction as the type that the file takes."""
    types = {str(value.name): value.dtype for value in subject.model.graph.inputs}
    return {
        name: array.astype(dtype.numpy()) if is_float(array) and (dtype := types.get(name)) is not None else array
        for name, array in inputs.items()
    }
