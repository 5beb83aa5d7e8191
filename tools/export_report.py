"""What an export made, as a table that fits 80 columns and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from ..export import Exported
from .files import megabytes
from .tables import error_text, not_run, plain_table


def report_table(exported: Exported, path: Path) -> Table:
    """Return what was written, its inputs and outputs, and what was checked."""
    table = plain_table("", "")
    table.show_header = False
    table.add_row("wrote", f"{escape(str(path))}, {megabytes(path):.1f} MB, opset {exported.opset}")
    for what, values in (("input", exported.model.graph.inputs), ("output", exported.model.graph.outputs)):
        for value in values:
            dims = ", ".join(str(dim if isinstance(dim, int) else dim.value or "?") for dim in value.shape or ())
            dtype = "?" if value.dtype is None else value.dtype.numpy().name
            table.add_row(what, escape(f"{value.name}  {dtype} [{dims}]"))
    for repair in exported.repairs:
        table.add_row("repaired", escape(repair))
    checked = exported.checked
    if checked is not None:
        table.add_row(
            "checked",
            f"{len(checked.cases)} runs against the module, by {escape(checked.how)}\n"
            f"largest difference on valid rows {error_text(checked.worst)}",
        )
        for note in checked.notes:
            table.add_row("note", escape(note))
        not_run(table, checked.not_run)
    return table


def report_json(exported: Exported, path: Path) -> dict[str, Any]:
    """Return the same as a dict of JSON's types; ``checked`` is the file's certificate."""
    return {
        "format": 1,
        "model": str(path),
        "opset": exported.opset,
        "inputs": exported.input_names,
        "outputs": exported.output_names,
        "repairs": list(exported.repairs),
        "checked": None if exported.checked is None else exported.checked.certificate(),
    }
