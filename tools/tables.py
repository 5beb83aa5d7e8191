"""Results as tables that fit 80 columns."""

from __future__ import annotations

from dataclasses import replace

from rich.table import Table

from .compare import Comparison
from ..export.patterns import NAMES


def verdict(ok: bool) -> str:
    """Return the coloured word for a result."""
    return "[green]agrees[/]" if ok else "[bold red]differs[/]"


def error_text(error: float | None) -> str:
    """Return an error with two digits; a dash where nothing was compared."""
    return "-" if error is None else f"{error:.1e}"


def comparison_table(comparison: Comparison) -> Table:
    """Return one line per padding pattern: sizes, valid rows, worst error, verdict."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("padding")
    table.add_column("batch x length")
    table.add_column("valid rows", justify="right")
    table.add_column("worst error", justify="right")
    table.add_column("")
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
