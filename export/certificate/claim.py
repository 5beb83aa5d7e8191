"""A certificate that was read from a file. Anything may stand in a file: what doesn't make sense or is too much to run
is refused as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cases.draw import Size, sizes_of
from ..cases.layout import Label
from ..check.checked import CERTIFICATE_KEY, METADATA_VERSION
from ..errors import ExportError
from .drawn_case import DrawnCase
from .drawn_from import DrawnFrom
from .fingerprint import Fingerprint

__all__ = ["Certificate", "CertificateError", "ClaimedCase"]

# Ours have some 30 cases, of 2 rows of 2048 tokens at most.
MAX_TEXT = 1 << 22
MAX_CASES = 500
MAX_SIZE = 4096
MAX_TOKENS = 1 << 14
MAX_ALL_TOKENS = 1 << 18
MAX_PAIRS = 1 << 24
MAX_NUMBERS = 1 << 26
REFUSED = "this is more than a check of ours does, and is refused; export or optimize the model again"


class CertificateError(ExportError):
    """A file has no certificate, or one that can't be repeated. The message says what to do."""


@dataclass(frozen=True)
class ClaimedCase:
    """A case: its name, its largest error on valid rows, and how to draw it again (None: the file doesn't say)."""

    name: str
    error: float | None
    drawn: DrawnCase | None


@dataclass(frozen=True)
class Certificate:
    """What a file says was checked, and how; see :class:`Checked`.

    Attributes
    ----------
    limits
        Tolerance per unit of the largest value, by element type.
    digest
        Of the model that was checked; None in a file of an earlier release.
    drawn_from
        What the cases were drawn from; None in a file of an earlier release.
    optimized
        The options of :func:`optimize`; None for an export.
    """

    how: str
    against: str
    seed: int
    cases: tuple[ClaimedCase, ...]
    limits: dict[str, float]
    not_run: tuple[tuple[str, str], ...]
    versions: dict[str, str]
    digest: str | None
    drawn_from: DrawnFrom | None
    padding_rows: str
    optimized: dict[str, Any] | None

    @property
    def worst(self) -> float | None:
        """Largest error of all cases."""
        return max((case.error for case in self.cases if case.error is not None), default=None)

    @staticmethod
    def write(entry: Mapping[str, Any]) -> str:
        """Return a certificate as it stands in a file."""
        return json.dumps(entry, separators=(",", ":"))

    @classmethod
    def read(cls, metadata: Mapping[str, str]) -> Certificate:
        """Read the certificate of a file.

        Raises
        ------
        CertificateError
            If there is none, it is damaged or of a version that isn't known, or it asks for too much.
        """
        if CERTIFICATE_KEY not in metadata:
            raise CertificateError(
                "the file has no certificate: it was not made by maskport, or nothing was checked when it was; "
                "export or optimize the model with its check"
            )
        text = metadata[CERTIFICATE_KEY]
        if len(text) > MAX_TEXT:
            raise CertificateError(f"the file's certificate has {len(text)} characters; {REFUSED}")
        try:
            entry = json.loads(text)
            if entry["version"] != METADATA_VERSION:
                raise CertificateError(
                    f"the file's certificate has version {entry['version']!r}, this release reads {METADATA_VERSION}; "
                    "install the release that made the file"
                )
            found = cls._of(entry)
            _check_work(found)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:100]
            raise CertificateError(
                f"the file's certificate is damaged ({reason}); export or optimize the model again"
            ) from error
        return found

    @classmethod
    def _of(cls, entry: Mapping[str, Any]) -> Certificate:
        claimed = entry.get("cases", [])
        if len(claimed) > MAX_CASES:
            raise CertificateError(f"the file's certificate has {len(claimed)} cases; {REFUSED}")
        seed = entry.get("seed", 0)
        if not isinstance(seed, int) or seed < 0:
            raise ValueError(f"the seed is {seed!r}")
        optimized = entry.get("optimized")
        if not isinstance(optimized, dict | None):
            raise TypeError(f"the options are {optimized!r}")
        drawn_from = entry.get("drawn_from")
        digest = entry.get("digest")
        return cls(
            str(entry.get("how", "nothing")),
            str(entry.get("against", "nothing")),
            seed,
            tuple(_case(case) for case in claimed),
            {name: float(limit["per_unit"]) for name, limit in entry.get("limits", {}).items()},
            tuple((str(case["name"]), str(case["why"])) for case in entry.get("not_run", [])),
            {str(name): str(version) for name, version in entry.get("versions", {}).items()},
            None if digest is None else str(digest),
            None if drawn_from is None else DrawnFrom.from_json(drawn_from, MAX_NUMBERS),
            str(entry.get("padding_rows", "any")),
            optimized,
        )


def _case(entry: Mapping[str, Any]) -> ClaimedCase:
    name, error = str(entry["name"]), entry["error"]
    error = None if error is None else float(error)
    if "inputs" not in entry:
        return ClaimedCase(name, error, None)
    sizes = {str(label): size for label, size in entry["sizes"].items()}
    if not all(isinstance(size, int) and size >= 0 for size in sizes.values()):
        raise ValueError(f"sizes of {name!r}")
    outputs = {str(output): Fingerprint.from_json(value) for output, value in entry["outputs"].items()}
    if any(np.prod([float(size) for size in each.shape]) > MAX_NUMBERS for each in outputs.values()):
        raise CertificateError(f"the file's certificate has an output of a size that can't be; {REFUSED}")
    return ClaimedCase(name, error, DrawnCase(sizes, str(entry["pattern"]), str(entry["inputs"]), outputs))


def _check_work(certificate: Certificate) -> None:
    """Refuse what is more work than any check of ours is."""
    if certificate.drawn_from is None:
        return
    layout, everything = certificate.drawn_from.layout, 0
    for case in certificate.cases:
        if case.drawn is None:
            continue
        sizes = all_sizes(certificate.drawn_from, case.drawn)
        lengths = [sizes[label] for label in layout.tokens]
        tokens = sizes.get(layout.batch, 1) * max(lengths, default=1)
        everything += tokens
        shapes = [
            [float(sizes.get(axis, size)) for axis, size in zip(value.axes, example.shape, strict=True)]
            for value, example in zip(layout.inputs.values(), certificate.drawn_from.examples.values(), strict=True)
        ]
        if (
            max(case.drawn.sizes.values(), default=0) > MAX_SIZE
            or tokens > MAX_TOKENS
            or tokens * max(lengths, default=1) > MAX_PAIRS
            or sum(float(np.prod(shape)) for shape in shapes) > MAX_NUMBERS
            or everything > MAX_ALL_TOKENS
        ):
            raise CertificateError(f"the file's certificate has a case {case.name[:80]!r}; {REFUSED}")


def all_sizes(drawn_from: DrawnFrom, drawn: DrawnCase) -> dict[Label, int]:
    """Return the size of every axis of a case, the free ones first and in the order in which they name it."""
    sizes: dict[Label, int] = {}
    sizes.update(drawn.sizes)
    sizes.update((n, n) for n in sizes_of(drawn_from.layout, Size(1, 1, 1)) if isinstance(n, int))
    return sizes
