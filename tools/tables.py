"""Results as tables that fit 80 columns."""

from __future__ import annotations

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
