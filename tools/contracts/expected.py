"""The masks that were read from a file are those that were declared."""

from __future__ import annotations

from collections.abc import Iterator

from ...export.cases.layout import Label
from ...models.masks import Mask
from ..errors import ToolError
from ..verdict import FAILED, NOT_RUN, OK, Contract
from .claim import Claim
from .subject import Subject

NAME = "expected-mask"


def parse_expected(text: str, subject: Subject) -> Mask:
    """Read a declared mask.

    Raises
    ------
    ToolError
        If it is no mask, or names what is no input of the file.
    """
    try:
        mask = Mask.parse(text)
    except ValueError as error:
        raise ToolError(f"--expect {text!r} is no mask: {error}") from error
    known = {**subject.layout.inputs, **subject.interface.hidden}
    if unknown := [name for name in mask.tensors if name not in known]:
        raise ToolError(
            f"--expect names {unknown[0]!r}; the inputs are {', '.join(subject.layout.inputs)}: "
            "exporters drop an input that nothing reads"
        )
    return mask


def declared(subject: Subject, mask: Mask) -> list[Claim]:
    """Return the claims with the declared mask for each attention within the axis that its tensors lie on."""
    label = _axis(subject, mask)
    claims = [
        Claim(c.name, mask, label, label, c.empty_rows) if c.queries is None or c.queries == c.keys == label else c
        for c in subject.claims
    ]
    return claims or [Claim("the model", mask, label, label)]


def _axis(subject: Subject, mask: Mask) -> Label:
    """Return the token axis that a mask's tensors lie on, the last one if none does: there decoders write."""
    labels = [
        label
        for name in mask.tensors
        if name in subject.layout.inputs
        for label in subject.layout.positions(subject.layout.inputs[name].axes).values()
        if label in subject.layout.tokens
    ]
    return labels[0] if labels else subject.layout.tokens[-1] if subject.layout.tokens else None


def as_expected(subject: Subject, mask: Mask) -> Iterator[Contract]:
    """Compare each mask that was read with the declared one, for all lengths and all tensors."""
    label = _axis(subject, mask)
    own = {claim.name for claim in subject.claims if claim.queries == claim.keys == label}
    compared = 0
    for name, read in subject.read.items():
        if read is None:
            yield Contract(f"{NAME}/{name}", NOT_RUN, why="the attention was not understood")
        elif name in own:
            compared += 1
            yield _same(name, read, mask, subject.sources.get(name))
    if not subject.read:
        yield Contract(NAME, NOT_RUN, why="no attention was found in the graph")
    elif not compared and None not in subject.read.values():
        yield Contract(NAME, NOT_RUN, why=f"no attention is within {label}")


def _same(name: str, read: Mask, mask: Mask, source: tuple[str, int] | None) -> Contract:
    if read == mask:
        return Contract(f"{NAME}/{name}", OK)
    why = f"the graph's mask is `{read}`, expected is `{mask}`"
    try:
        found = mask.witness(read, self_attention=True)
    except ValueError:
        # A tensor is read in two shapes: no point can be given to both.
        found = None
    if found is not None:
        tensors = ", ".join(f"{tensor}={value.tolist()}" for tensor, value in found.tensors.items())
        sizes = f"length {found.sizes.q_len}" + (f", {tensors}" if tensors else "")
        why += f"; they differ at query {found.q}, key {found.k}, {sizes}"
    return Contract(f"{NAME}/{name}", FAILED, why=why, source=source)
