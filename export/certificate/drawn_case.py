"""One case of a check, as a certificate keeps it: how to draw it again, and what came out."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..cases.draw import Case, is_float
from ..cases.layout import Layout
from ..cases.rows import VALID
from .fingerprint import Fingerprint

# Of how many outputs a case keeps fingerprints: of others with each case, so that a long list stays short.
KEPT = 4


@dataclass(frozen=True)
class DrawnCase:
    """What tells a case.

    Attributes
    ----------
    sizes
        Of the free axes, in the order in which they name the case.
    pattern
        Of the padding.
    inputs
        Checksum of the arrays: whether they were drawn again as they were.
    outputs
        Fingerprints of the reference's valid rows, by output.
    """

    sizes: dict[str, int]
    pattern: str
    inputs: str
    outputs: dict[str, Fingerprint]

    @classmethod
    def of(
        cls,
        layout: Layout,
        case: Case,
        expected: Mapping[str, np.ndarray],
        types: Mapping[str, np.dtype[Any]],
        place: int,
        without: Collection[str] = (),
    ) -> DrawnCase:
        """Keep a case.

        Parameters
        ----------
        layout, case, expected
            What was drawn, and what the reference gave.
        types
            Element types of the file's outputs: what is too large for them has no fingerprint.
        place
            Number of the case, which chooses the outputs that are kept.
        without
            Outputs of which not all valid rows were compared.
        """
        names = list(layout.outputs)
        chosen = dict.fromkeys(names[(place * KEPT + i) % len(names)] for i in range(min(KEPT, len(names))))
        found = {
            name: fingerprint_of(layout, case, name, expected[name], types[name])
            for name in chosen
            if name not in without
        }
        sizes = {label: size for label, size in case.sizes.items() if isinstance(label, str)}
        kept = {name: fingerprint for name, fingerprint in found.items() if fingerprint is not None}
        return cls(sizes, case.pattern, checksum(case.inputs), kept)

    def to_json(self) -> dict[str, Any]:
        """Return it with JSON's types."""
        outputs = {name: fingerprint.to_json() for name, fingerprint in self.outputs.items()}
        return {"sizes": self.sizes, "pattern": self.pattern, "inputs": self.inputs, "outputs": outputs}


def fingerprint_of(
    layout: Layout, case: Case, name: str, output: np.ndarray, dtype: np.dtype[Any]
) -> Fingerprint | None:
    """Take the fingerprint of an output's valid rows, in the file's element type; None if that can't be told."""
    alone = replace(layout, outputs={name: layout.outputs[name]})
    kinds = case.rows.kinds(alone, layout.outputs[name], output.shape)
    if kinds is None:
        return None
    if is_float(output):
        with np.errstate(over="ignore"):
            output = output.astype(dtype)
    return Fingerprint.of(f"{case.name}/{name}", output, kinds[VALID])


def checksum(inputs: Mapping[str, np.ndarray]) -> str:
    """Return a checksum of arrays by name."""
    found = 0
    for name, array in sorted(inputs.items()):
        found = zlib.crc32(f"{name} {array.dtype.name} {array.shape}".encode(), found)
        found = zlib.crc32(np.ascontiguousarray(array).tobytes(), found)
    return f"{found:08x}"
