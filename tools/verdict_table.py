"""A verdict as text that fits 80 columns."""

from __future__ import annotations

import re

from rich.markup import escape
from rich.table import Table

from ..export.cases.patterns import MORE_NAMES
from .tables import error_text, not_run, plain_table, verdict
from .verdict import FAILED, NOT_RUN, OK, Verdict, worst

SHOWN = 5
NUMBER = re.compile(r"\d+")
CAPTION = """\
Largest differences, also in units in the last place of the row's
largest number (ulp), and the least cosine of a row. Empty rows
have no key; they and padding need only be finite."""
STYLED = {OK: "[green]ok[/]", FAILED: "[bold red]failed[/]"}


def verdict_table(result: Verdict) -> Table:
    """Return one line per padding pattern: runs, largest difference of each kind of row, verdict."""
    table = plain_table("padding", ">runs", ">valid rows", ">ulp", ">cosine", ">padding", ">empty", "")
    if any(case.rows != "valid" for case in result.cases):
        table.caption, table.caption_justify = CAPTION, "left"
    for name in (*MORE_NAMES, "-"):
        cases = tuple(case for case in result.cases if case.pattern == name)
        if cases:
            runs = len({case.case for case in cases})
            valid, padding, empty = (error_text(worst(cases, rows)) for rows in ("valid", "padding", "empty"))
            metrics = [case.metrics for case in cases if case.metrics is not None]
            ulp = f"{max(one.ulp for one in metrics):.2g}" if metrics else "-"
            cosine = f"{min(one.cosine for one in metrics):.6f}" if metrics else "-"
            table.add_row(name, str(runs), valid, ulp, cosine, padding, empty, verdict(all(case.ok for case in cases)))
    return table


def findings_table(result: Verdict) -> Table:
    """Return what the table doesn't say: failures, the first of each kind, contracts and tolerances."""
    table = plain_table("", "")
    table.show_header = False
    failed = [case for case in result.cases if not case.ok]
    kinds = {(case.pattern, case.rows, case.metric): case for case in reversed(failed)}
    shown = list(reversed(kinds.values()))[:SHOWN]
    for case in shown:
        table.add_row(STYLED[FAILED], escape(str(case)))
    if len(failed) > len(shown):
        table.add_row("", f"and {len(failed) - len(shown)} more; --json lists all")
    for contract in result.contracts:
        if contract.status != NOT_RUN:
            value = "" if contract.value is None else f" {contract.value:.2g}"
            table.add_row(STYLED[contract.status], escape(f"{contract.name}{value}{_after(': ', contract.why)}"))
    not_run(table, _alike([(c.name, c.why or "") for c in result.contracts if c.status == NOT_RUN]))
    for dtype, (limit, why) in result.tolerances.items():
        table.add_row("[dim]limit[/]", f"[dim]{dtype}: {limit:.0e} of the largest value; {escape(why)}[/]")
    return table


def _alike(not_run: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Give the same reason to what was not run for reasons that differ in numbers alone, such as sizes."""
    first: dict[str, str] = {}
    return [(name, first.setdefault(NUMBER.sub("0", why), why)) for name, why in not_run]


def conclusion(result: Verdict, candidate: str, reference: str | None) -> str:
    """Return the verdict as a sentence with markup."""
    if reference is None:
        if result.ok:
            return f"{escape(candidate)} [green]keeps[/] what its masks promise."
        if result.failures:
            return f"{escape(candidate)} [bold red]breaks[/] what its masks promise."
        return f"[bold red]Nothing was shown[/]: {escape(candidate)} is not known to be right."
    if result.ok:
        return f"{escape(candidate)} [green]agrees[/] with {escape(reference)}."
    compared = [
        *(case.ok for case in result.cases),
        *(c.status != FAILED for c in result.contracts if c.name == "interface"),
    ]
    if result.failures and not all(compared):
        return f"{escape(candidate)} [bold red]differs[/] from {escape(reference)}."
    if result.failures and result.worst is not None:
        return f"{escape(candidate)} agrees with {escape(reference)}, and [bold red]breaks[/] what its masks promise."
    return f"[bold red]Nothing was compared[/]: {escape(candidate)} is not shown to be right."


def _after(mark: str, text: str | None) -> str:
    return f"{mark}{text}" if text else ""
