"""What a file takes for granted of its masks (``maskport.assumes``), checked on the values of each run.

A rewrite that needs a fact that the graph can't prove writes it into the file. The table below says what each fact
means. A mask's *real* positions are those that differ from its pad value, which is 0 unless ``maskport.io`` says
another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .errors import AssumptionViolated, ModelError
from .inputs import DeclaredValue

ASSUMES_KEY, IO_KEY = "maskport.assumes", "maskport.io"
VERSION = 1


def _after_real(real: np.ndarray) -> np.ndarray:
    """Say of each position whether the one before it is real; none comes before the first."""
    before = np.zeros_like(real)
    before[..., 1:] = real[..., :-1]
    return before


def _after_padding(real: np.ndarray) -> np.ndarray:
    before = np.zeros_like(real)
    np.logical_not(real[..., :-1], out=before[..., 1:])
    return before


def _second_starts(real: np.ndarray) -> np.ndarray:
    starts = real & ~_after_real(real)
    return starts & (np.cumsum(starts, axis=-1) > 1)


class Check(NamedTuple):
    """A fact: `wrong` marks the positions that break it, given the values, which of them are real, and N."""

    wrong: Callable[[np.ndarray, np.ndarray, int], np.ndarray]
    broken: str


# The checked axis is the last one of all arrays here; a row is what is left of the others.
CHECKS = {
    "binary": Check(lambda values, real, n: np.logical_and(values != 0, values != 1), "is neither 0 nor 1"),
    "right_padded": Check(lambda values, real, n: real & _after_padding(real), "is real and comes after padding"),
    "left_padded": Check(lambda values, real, n: ~real & _after_real(real), "is padding and comes after a real one"),
    "contiguous": Check(lambda values, real, n: _second_starts(real), "is real again after a gap"),
    "nonempty_rows": Check(lambda values, real, n: real.sum(-1, keepdims=True) == 0, "is padding, as the whole row is"),
    "length_le": Check(
        lambda values, real, n: np.broadcast_to(np.arange(values.shape[-1]) >= n, values.shape), "is beyond that length"
    ),
}


@dataclass(frozen=True)
class Assumption:
    """One fact about one input.

    Attributes
    ----------
    input : str
        The input's name.
    check : str
        The fact as the file writes it, ``"length_le:512"``.
    axis : int
        The axis along which rows run.
    source : str
        What took it for granted.
    pad : int or float
        The value of positions that are no token.
    """

    input: str
    check: str
    axis: int
    source: str
    pad: float

    def verify(self, values: np.ndarray) -> None:
        """Raise AssumptionViolated, with the row and the value, if the input breaks the fact."""
        name, _, number = self.check.partition(":")
        check = CHECKS[name]
        if self.axis != values.ndim - 1:
            values = np.moveaxis(values, self.axis, -1)
        wrong = check.wrong(values, values != self.pad, int(number or 0))
        if not wrong.any():
            return
        *row, position = (int(index) for index in np.argwhere(wrong)[0])
        at = f"row {', '.join(map(str, row))}, " if row else ""
        given = (
            f"{values[(*row, position)]} at {at}position {position} {check.broken}" if values.size else "no position"
        )
        raise AssumptionViolated(
            f"input {self.input!r} must be {self.check}, which {self.source or 'the model'} takes for granted: "
            f"{given}; change the input, or make the model again without this assumption"
        )


def read_assumptions(metadata: Mapping[str, str], declared: Sequence[DeclaredValue]) -> tuple[Assumption, ...]:
    """Return the assumptions in a file's metadata.

    Raises
    ------
    ModelError
        If the metadata is damaged, of another version, or names a check, input or axis that doesn't exist: what can't
        be checked must not be ignored.
    """
    io = versioned(metadata, IO_KEY)
    written = versioned(metadata, ASSUMES_KEY).get("assumes", [])
    try:
        pads = {name: entry.get("pad", 0) for name, entry in io.get("inputs", {}).items()}
        return tuple(_assumption(entry, declared, pads) for entry in written)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"the file's {IO_KEY} or {ASSUMES_KEY} is damaged: {error!r}; make the file again") from error


def versioned(metadata: Mapping[str, str], key: str) -> dict[str, Any]:
    """Return what a file says under a key, {} if nothing.

    Raises
    ------
    ModelError
        If it is damaged or of another version.
    """
    if key not in metadata:
        return {}
    try:
        found = json.loads(metadata[key])
    except ValueError as error:
        raise ModelError(f"the file's {key} is no JSON: {error}; make the file again") from error
    version = found.get("version") if isinstance(found, dict) else None
    if version != VERSION:
        raise ModelError(
            f"the file's {key} has version {version}, this Maskport reads version {VERSION}; "
            f"update Maskport, or make the file again with this one"
        )
    return found


def _assumption(entry: Mapping[str, Any], declared: Sequence[DeclaredValue], pads: Mapping[str, Any]) -> Assumption:
    name, check, axis = entry["input"], entry["check"], entry.get("axis", -1)
    fact, colon, number = check.partition(":")
    if fact not in CHECKS or (fact == "length_le") != bool(colon) or (colon and not number.isdecimal()):
        raise ModelError(
            f"the file assumes that {name!r} is {check!r}, which this Maskport can't check; it knows "
            f"{', '.join(CHECKS)} (length_le with a number); update Maskport"
        )
    found = next((item for item in declared if item.name == name), None)
    if found is None or found.element is None:
        raise ModelError(
            f"the file assumes that {name!r} is {check}, but has no such numeric input; make the file again"
        )
    if axis in found.shape and isinstance(axis, str):
        axis = found.shape.index(axis)
    if not isinstance(axis, int) or not -len(found.shape) <= axis < len(found.shape):
        raise ModelError(
            f"the file assumes that {name!r} is {check} along axis {axis!r}, which {found} doesn't have; "
            f"make the file again"
        )
    return Assumption(name, check, axis % len(found.shape), str(entry.get("source", "")), pads.get(name, 0))
