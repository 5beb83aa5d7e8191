"""Write the table of costs that is shipped: ``python -m maskport.tools.autotune --write-table costs.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def main(
    table: Annotated[Path, typer.Option("--write-table", help="The file to write.", show_default=False)],
    seconds: Annotated[float, typer.Option(help="For each attention, size and element type.")] = 0.2,
    passes: Annotated[int, typer.Option(help="How often all is measured; the median counts.")] = 1,
    threads: Annotated[int, typer.Option(help="1 takes the time of the thread itself; 0 is all cores.")] = 1,
) -> None:
    """Measure every kernel of the CPU on this machine, beside decomposed attention."""
    from ..export.tuning.table import measure_table

    found = measure_table(seconds, passes, threads, lambda step: typer.echo(step, err=True))
    table.write_text(_text(found), encoding="utf-8")


def _text(found: dict[str, object]) -> str:
    """Return JSON with a line for each kernel."""
    lines = []
    for name, entry in found.items():
        if isinstance(entry, dict) and name != "machine":
            rows = ",\n".join(f"    {json.dumps(kernel)}: {json.dumps(costs)}" for kernel, costs in entry.items())
            lines.append(f"  {json.dumps(name)}: {{\n{rows}\n  }}")
        else:
            lines.append(f"  {json.dumps(name)}: {json.dumps(entry)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    typer.run(main)
