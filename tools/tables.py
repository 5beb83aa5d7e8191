"""Results as tables that fit 80 columns."""

from __future__ import annotations

from dataclasses import replace

from rich.table import Table

from ..export.patterns import NAMES
from .compare import Comparison


def plain_table(*columns: str) -> Table:
    """Return an empty table without lines; a column whose title begins with ``>`` is set to the right."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column[:1] == ">" else "left", overflow="fold")
    return table


def verdict(ok: bool) -> str:
    """Return the coloured word for a result."""
    return "[green]agrees[/]" if ok else "[bold red]differs[/]"


def error_text(error: float | None) -> str:
    """Return an error with two digits; a dash where nothing was compared."""
    return "-" if error is None else f"{error:.1e}" if error else "0"


def comparison_table(comparison: Comparison) -> Table:
    """Return one line per padding pattern: sizes, valid rows, worst error, verdict."""
    table = plain_table("padding", "batch x length", ">valid rows", ">worst error", "")
    for name in NAMES:
        part = replace(comparison, cases=tuple(case for case in comparison.cases if case.pattern == name))
        if part.cases:
            table.add_row(
                name,
                ", ".join(f"{case.batch}x{case.length}" for case in part.cases),
                str(sum(case.rows for case in part.cases)),
                error_text(part.worst),
                verdict(not part.failures),
            )
    return table
