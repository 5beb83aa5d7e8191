"""What a validation found: cases, contracts, and whether they make a candidate right."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal
from xml.etree import ElementTree

from ..export.check.checked import versions

if TYPE_CHECKING:
    from .parity.metrics import Metrics
    from .parity.plan import Plan

FORMAT = 1
OK: Final = "ok"
FAILED: Final = "failed"
NOT_RUN: Final = "not run"
# Contracts that say nothing of which tokens a row reads: by them alone no file is right.
ASIDE = (
    "repeatable",
    "finite-rows",
    "empty-rows",
    "input-matters",
    "lengths-free",
    "certificate/digest",
    "certificate/versions",
)


@dataclass(frozen=True)
class Check:
    """One figure of one run of both sides.

    Attributes
    ----------
    name
        ``parity/batch=3,seq=17,mask=left``, with the output's name at the end where there are several.
    ok
        Whether the figure is within its limit.
    metric
        ``max_abs``: largest absolute difference. ``nan``: how many numbers are NaN. ``non_finite``: how many are NaN or
        infinite where the reference's are not. ``shape``: in how many axes the shapes differ. ``error``: whether the
        candidate failed to run. ``fingerprint``: by how much a number is off at least, told by a few sums.
    value, limit
        The figure, and the largest that is right.
    rows
        ``valid``: real tokens to which the mask leaves a key. ``padding``: no real token. ``empty``: without a key.
    difference
        Of rows that are not valid: largest absolute difference, for information.
    why
        What the candidate said, if it failed to run.
    metrics
        Of ``max_abs``: the same difference in other terms, for information.
    """

    name: str
    ok: bool
    metric: str
    value: float
    limit: float
    rows: str
    difference: float | None = None
    why: str | None = None
    metrics: Metrics | None = None

    @property
    def pattern(self) -> str:
        """Name of the padding pattern, ``-`` if the model has no mask."""
        return next((part[5:] for part in self.case.split(",") if part.startswith("mask=")), "-")

    @property
    def case(self) -> str:
        """Name of the inputs that both sides were run on: ``batch=3,seq=17,mask=left``."""
        return self.name.split("/")[1]

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the free axes of the inputs, by their names."""
        parts = (part.rpartition("=") for part in self.case.split(","))
        return {axis: int(size) for axis, _, size in parts if size.isdigit()}

    def __str__(self) -> str:
        where = f" {self.why}" if self.why else ""
        what = {
            "max_abs": f"{self.rows} rows differ by {self.value:.2g}, limit {self.limit:.1g}",
            "nan": f"{self.value:.0f} numbers of {self.rows} rows are NaN{where}",
            "non_finite": f"{self.value:.0f} numbers of {self.rows} rows are NaN or infinite here alone",
            "shape": f"the shape differs: {self.why}",
            "error": f"the candidate failed: {self.why}",
            "fingerprint": f"{self.rows} rows are off by {self.value:.2g} at least, limit {self.limit:.1g}",
        }
        return f"{self.name.removeprefix('parity/')}: {what[self.metric]}"

    def to_json(self) -> dict[str, Any]:
        """Return it with JSON's types; a difference that is infinite is null."""
        entry: dict[str, Any] = {"name": self.name, "ok": self.ok, "metric": self.metric}
        entry |= {"value": _number(self.value), "limit": self.limit, "rows": self.rows}
        if self.difference is not None:
            entry["max_abs"] = _number(self.difference)
        if self.metrics is not None:
            entry |= {name: _number(value) for name, value in self.metrics._asdict().items()}
        return entry | ({"why": self.why} if self.why else {})


@dataclass(frozen=True)
class Contract:
    """A promise beyond single cases.

    Attributes
    ----------
    name
        What is promised.
    status
        ``ok``, ``failed`` or ``not run``: nothing was perturbed, so nothing was shown.
    value
        The figure that decided it, if there is one.
    why
        In words; always there if the status isn't ``ok``.
    source
        File and line that the part of the model at fault was exported from, where the file says so.
    """

    name: str
    status: Literal["ok", "failed", "not run"]
    value: float | None = None
    why: str | None = None
    source: tuple[str, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it with JSON's types."""
        entry: dict[str, Any] = {"name": self.name, "status": self.status}
        if self.value is not None:
            entry["value"] = _number(self.value)
        if self.source is not None:
            entry["source"] = {"file": self.source[0], "line": self.source[1]}
        return entry | ({"why": self.why} if self.why else {})


TWINS: Final = Contract(
    "kernels",
    NOT_RUN,
    why="the CPU has no kernel for an operator: executable twins stood in, and the kernels of a device were not tried",
)


@dataclass(frozen=True)
class Verdict:
    """What a validation found.

    Attributes
    ----------
    cases
        In the order in which they were run.
    contracts
        What was promised beyond single cases; what could not be run, with the reason.
    tolerances
        By element type of the compared outputs: the largest difference for values up to 1, and why.
    reference
        Whether there was a reference to compare with; without one the contracts decide.
    plan
        Which cases were chosen.
    """

    cases: tuple[Check, ...]
    contracts: tuple[Contract, ...]
    tolerances: dict[str, tuple[float, str]]
    reference: bool = True
    plan: Plan | None = None

    @property
    def failures(self) -> tuple[Check | Contract, ...]:
        """The cases and contracts that failed."""
        return (
            *(case for case in self.cases if not case.ok),
            *(contract for contract in self.contracts if contract.status == FAILED),
        )

    @property
    def ok(self) -> bool:
        """Whether valid rows were compared, or without a reference some contract was shown, and nothing failed."""
        kept = [c for c in self.contracts if c.status == OK and not c.name.startswith(ASIDE)]
        shown = self.worst is not None if self.reference else bool(kept)
        return shown and not self.failures

    @property
    def worst(self) -> float | None:
        """Largest difference on valid rows; NaN if one side alone is NaN, None if nothing was compared."""
        return worst(self.cases)

    @property
    def runs(self) -> int:
        """How many sets of inputs both sides were run on."""
        return len({case.case for case in self.cases})

    def with_contracts(self, contracts: tuple[Contract, ...]) -> Verdict:
        """Return the verdict with more contracts, behind its own; each once."""
        return replace(self, contracts=tuple(dict.fromkeys((*self.contracts, *contracts))))

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as a dict of JSON's types."""
        return {
            "format": FORMAT,
            "ok": self.ok,
            "cases": [case.to_json() for case in self.cases],
            "contracts": [contract.to_json() for contract in self.contracts],
            "limits": {what: {"value": value, "why": why} for what, (value, why) in self.tolerances.items()},
            "versions": versions(),
        } | ({"plan": self.plan.to_json()} if self.plan is not None else {})

    def to_junit(self) -> str:
        """Return the verdict as a JUnit report, as test runners write it: one test case per case and contract."""
        skipped = [contract for contract in self.contracts if contract.status == NOT_RUN]
        entries: tuple[Check | Contract, ...] = (*self.cases, *self.contracts)
        counts = {"tests": len(entries), "failures": len(self.failures), "skipped": len(skipped)}
        attributes = {"name": "maskport validate"} | {name: str(count) for name, count in counts.items()}
        suite = ElementTree.Element("testsuite", attributes)
        for entry in entries:
            name = f"{entry.name} ({entry.rows} rows)" if isinstance(entry, Check) else entry.name
            test = ElementTree.SubElement(suite, "testcase", classname="maskport.validate", name=name)
            if entry in self.failures:
                message = str(entry) if isinstance(entry, Check) else entry.why or entry.name
                ElementTree.SubElement(test, "failure", message=message)
            elif entry in skipped:
                ElementTree.SubElement(test, "skipped", message=entry.why or "")
        ElementTree.indent(suite)
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def worst(cases: tuple[Check, ...], rows: str = "valid") -> float | None:
    """Return the largest difference of some rows: NaN if a side has NaN, None if nothing was compared."""
    kind = [case for case in cases if case.rows == rows]
    if any(case.metric == "nan" for case in kind):
        return math.nan
    if rows == "valid":
        return max((case.value for case in kind if case.metric == "max_abs"), default=None)
    return max((case.difference for case in kind if case.difference is not None), default=None)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
