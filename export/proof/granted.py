"""Which inputs a result may be given: those that keep to what it takes for granted (``maskport.assumes``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..cases.draw import Case
from ..cases.layout import Layout

Assumes = Sequence[Mapping[str, Any]]

# Whether rows that lie on the last axis keep to a fact, given their values and which of them are real.
HOLDS: dict[str, Callable[[np.ndarray, np.ndarray, int], bool]] = {
    "binary": lambda values, real, n: bool(np.isin(values, (0, 1)).all()),
    "right_padded": lambda values, real, n: not (real[..., 1:] & ~real[..., :-1]).any(),
    "left_padded": lambda values, real, n: not (~real[..., 1:] & real[..., :-1]).any(),
    "contiguous": lambda values, real, n: bool((_starts(real) <= 1).all()),
    "nonempty_rows": lambda values, real, n: bool(real.any(axis=-1).all()),
    "length_le": lambda values, real, n: values.shape[-1] <= n,
}


def _starts(real: np.ndarray) -> np.ndarray:
    return (np.diff(real, axis=-1, prepend=False) & real).sum(axis=-1)


def is_granted(case: Case, layout: Layout, assumes: Assumes) -> bool:
    """Whether a case keeps to every assumption; one that is not known is kept to by no case."""
    for entry in assumes:
        check, _, number = str(entry["check"]).partition(":")
        values = case.inputs.get(str(entry["input"]))
        if check not in HOLDS or values is None:
            return False
        value = layout.inputs[str(entry["input"])]
        axis = entry.get("axis", -1)
        axis = value.axes.index(axis) if isinstance(axis, str) else int(axis)
        values = np.moveaxis(values, axis, -1)
        if not HOLDS[check](values, values != (value.pad or 0), int(number or 0)):
            return False
    return True


def in_words(entry: Mapping[str, Any]) -> str:
    """Return an assumption as a sentence's end: ``attention_mask is padded on the right``."""
    check, _, number = str(entry["check"]).partition(":")
    return f"{entry['input']} {WORDS[check].format(n=number)}"


WORDS = {
    "binary": "holds 0 and 1 alone",
    "right_padded": "is padded on the right alone",
    "left_padded": "is padded on the left alone",
    "contiguous": "has no padding between real tokens",
    "nonempty_rows": "has a real token in every row",
    "length_le": "is no longer than {n}",
}
