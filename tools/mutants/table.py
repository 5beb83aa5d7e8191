"""A self-test as text that fits 80 columns."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from ..tables import plain_table
from .self_test import Mutant, SelfTest

CAUGHT, MISSED = "[green]caught[/]", "-"


def self_test_table(result: SelfTest) -> Table:
    """Return one line per fault: what caught it, and for one that nothing caught, why or that it survived."""
    table = plain_table("fault", "one batch", "parity", "contracts", "")
    for mutant in result.mutants:
        marks = [CAUGHT if found else MISSED for found in (mutant.one_batch, mutant.parity, mutant.contracts)]
        table.add_row(escape(mutant.name), *marks, _note(mutant))
    counts = [
        f"{sum(bool(getattr(mutant, kind)) for mutant in result.mutants)} of {len(result.mutants)}"
        for kind in ("one_batch", "parity", "contracts")
    ]
    table.add_row("[dim]together[/]", *counts, "")
    table.caption = "One batch: numpy.allclose on one batch without padding.\n" + (
        f"Not applicable: {escape(', '.join(result.not_applicable))}." if result.not_applicable else ""
    )
    table.caption_justify = "left"
    return table


def _note(mutant: Mutant) -> str:
    if mutant.survived:
        return "[bold red]survived[/]"
    return escape(f"no fault: {mutant.equivalent}") if mutant.equivalent and not mutant.caught else ""
