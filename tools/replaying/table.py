"""What a certificate claims and what came of repeating it, as text that fits 80 columns."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from ..tables import error_text, plain_table, verdict
from ..verdict import Check
from .replay import Replay

BY_FINGERPRINTS = (
    "Errors of now are told by fingerprints: what they are at least. --against REFERENCE compares all numbers."
)


def replay_table(replayed: Replay) -> Table:
    """Return one line per padding pattern: cases, how many were repeated, the largest error then and now."""
    table = plain_table("padding", ">cases", ">repeated", ">error then", ">now", ">limit", "")
    checks: dict[str, list[Check]] = {}
    for check in replayed.verdict.cases:
        checks.setdefault(check.case, []).append(check)
    cases = replayed.certificate.cases
    patterns = {case.name: _pattern(case.name) for case in cases}
    for pattern in dict.fromkeys(patterns.values()):
        of = [case for case in cases if patterns[case.name] == pattern]
        again = [checks[case.name] for case in of if case.name in checks]
        valid = [check for found in again for check in found if check.rows == "valid"]
        figures = (
            max((case.error for case in of if case.error is not None), default=None),
            max((check.value for check in valid if check.metric in ("max_abs", "fingerprint")), default=None),
            max((check.limit for check in valid), default=None),
        )
        word = verdict(all(check.ok for found in again for check in found)) if again else "[yellow]not run[/]"
        table.add_row(pattern, str(len(of)), str(len(again)), *map(error_text, figures), word)
    return table


def _pattern(name: str) -> str:
    return next((escape(part[5:]) for part in name.split(",") if part.startswith("mask=")), escape(name[:20]))


def note(replayed: Replay) -> str:
    """Return how the table is to be read."""
    by_fingerprints = any(check.metric == "fingerprint" for check in replayed.verdict.cases)
    return f"Largest errors on valid rows. {BY_FINGERPRINTS if by_fingerprints else ''}".rstrip()


def claim_text(replayed: Replay) -> str:
    """Return what the certificate claims, as sentences with markup."""
    claimed = replayed.certificate
    seed = f"seed {claimed.seed}, largest error {error_text(claimed.worst)}"
    return f"Claimed: {len(claimed.cases)} cases, {seed}, by {escape(claimed.how)}, against {escape(claimed.against)}."


def replay_conclusion(replayed: Replay, file: str) -> str:
    """Return the verdict as a sentence with markup."""
    if replayed.ok:
        return f"{escape(file)} [green]does[/] what its certificate says."
    if replayed.verdict.failures:
        return f"{escape(file)} [bold red]does not do[/] what its certificate says."
    return f"[bold red]Nothing was repeated[/]: {escape(file)} is not shown to do what its certificate says."
