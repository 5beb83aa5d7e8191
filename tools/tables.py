"""Results as tables that fit 80 columns."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table


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


def not_run(table: Table, reasons: Iterable[tuple[str, str]]) -> None:
    """Add what was not run to a table of two columns, names of the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, why in reasons:
        by_reason.setdefault(why, []).append(name)
    for why, names in by_reason.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        table.add_row("[yellow]not run[/]", escape(f"{names[0]}{more}: {why}"))
