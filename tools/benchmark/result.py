"""What was measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .candidates import OURS, Candidate
from .compare import Found

OK, WRONG, FAILED, UNAVAILABLE = "ok", "wrong", "failed", "not available"


@dataclass
class Entry:
    """One candidate.

    Attributes
    ----------
    name, group
        As in the table of candidates.
    status
        ``ok``; ``wrong``, if valid rows differ in a timed batch; ``failed``, if it could not be made, loaded or run at
        some point; ``not available``.
    why
        Of any other than ``ok``.
    setting
        Variables of its environment that were fastest.
    told
        What its optimizer said.
    made_seconds, load_seconds
        To make the file, and to load it; None where there is nothing to make.
    padding
        What small batches of each padding pattern gave.
    """

    name: str
    group: str
    status: str = OK
    why: str = ""
    setting: dict[str, str] = field(default_factory=dict)
    told: str = ""
    made_seconds: float | None = None
    load_seconds: float | None = None
    padding: dict[str, Found] = field(default_factory=dict)

    @classmethod
    def of(cls, candidate: Candidate) -> Entry:
        """Begin the entry of a candidate."""
        return cls(candidate.name, candidate.group)

    def fail(self, why: str, status: str = FAILED) -> None:
        """Note what went wrong first."""
        if self.status == OK:
            self.status, self.why = status, why


@dataclass
class Timed:
    """The times of a point.

    Attributes
    ----------
    name
        Its sweep.
    batch, length
        Rows of a batch, tokens of the longest row.
    real
        Share of the tokens that is real.
    elsewhere
        Share of the machine's cores that other processes used meanwhile; None where the system doesn't tell.
    seconds
        By candidate, one per round, of all batches together.
    megabytes
        By candidate: the peak of its process while it ran the point.
    errors
        By candidate: the largest error on valid rows; None where a value is NaN, or the shape is another.
    faults
        By candidate: why it failed or was wrong here.
    """

    name: str
    batch: int
    length: int
    real: float
    elsewhere: float | None = None
    seconds: dict[str, list[float]] = field(default_factory=dict)
    megabytes: dict[str, float | None] = field(default_factory=dict)
    errors: dict[str, float | None] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.batch} x {self.length}, {self.real:.0%} real"

    def median(self, name: str) -> float:
        """Return a candidate's median, in ms."""
        return statistics.median(self.seconds[name]) * 1e3

    def ratio(self, name: str, base: str) -> tuple[float, float, float]:
        """Return how many times as long as `base` a candidate took: the median of the rounds, and their quartiles."""
        ratios = [one / two for one, two in zip(self.seconds[name], self.seconds[base], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if ratios[1:] else ratios * 3
        return middle, low, high


@dataclass
class Result:
    """What :func:`~.bench.bench` found.

    Attributes
    ----------
    subject, what
        What was measured.
    reference
        The candidate that says what is right.
    machine
        Hardware, versions, threads.
    entries
        The candidates, in the order of the table.
    points
        The sizes, in the order of measurement.
    """

    subject: str
    what: str
    reference: str
    machine: dict[str, Any]
    entries: list[Entry]
    points: list[Timed]

    @property
    def ok(self) -> bool:
        """Whether our own file, where it could be made, is right."""
        return all(entry.status in (OK, UNAVAILABLE) for entry in self.entries if entry.group == OURS)

    def base(self, point: Timed) -> str:
        """Return the candidate that others are divided by: ours, else the first that is right."""
        right = self.right(point)
        return next((entry.name for entry in right if entry.group == OURS), right[0].name)

    def right(self, point: Timed) -> list[Entry]:
        """Return the candidates that were right at a point, in the order of the table."""
        return [entry for entry in self.entries if entry.name in point.seconds and entry.name not in point.faults]

    def summary(self, point: Timed) -> list[dict[str, Any]]:
        """Return the fastest right candidate of each group at a point, and its ratio to ours."""
        base, best = self.base(point), {}
        for entry in sorted(self.right(point), key=lambda entry: -point.median(entry.name)):
            best[entry.group] = entry.name
        return [
            {"group": group, "name": name, "ms": point.median(name), "ratio": point.ratio(name, base)[0]}
            for group, name in best.items()
        ]

    def to_json(self) -> dict[str, Any]:
        """Return it as one object."""
        return {
            "format": 1,
            "ok": self.ok,
            "subject": self.subject,
            "what": self.what,
            "reference": self.reference,
            "machine": self.machine,
            "candidates": [
                {**asdict(entry), "padding": {name: found._asdict() for name, found in entry.padding.items()}}
                for entry in self.entries
            ],
            "points": [{**asdict(point), "summary": self.summary(point)} for point in self.points],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Result:
        """Read what :meth:`to_json` returned.

        Raises
        ------
        KeyError, TypeError
            If it is something else.
        """
        points: Sequence[Mapping[str, Any]] = found["points"]
        return cls(
            found["subject"],
            found["what"],
            found["reference"],
            dict(found["machine"]),
            [
                Entry(**{**entry, "padding": {name: Found(**each) for name, each in entry["padding"].items()}})
                for entry in found["candidates"]
            ],
            [Timed(**{key: value for key, value in point.items() if key != "summary"}) for point in points],
        )
