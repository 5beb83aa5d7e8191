"""What an optimization did, as text that fits 80 columns: what each attention became, and why nothing better."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ..export.optimized import Optimized, OptimizedSite
from ..export.proof.granted import in_words
from ..export.tuning.answer import Answer
from .files import megabytes
from .screen import Screen
from .shown import joined, plural, shown
from .tables import error_text, not_run, plain_table

LONGEST_TEXT = 300
LONGEST_REASON = 600
# What may have become of rows that are no real token, by the rule that was asked for.
PADDING_ROWS = {
    "any": "any: finite, their values are open, and no valid row reads them",
    "zero": "zero: exactly zero in every output [batch, tokens, ...]",
    "keep": "keep: as the source gives them, wherever a row has a key",
}
PACKED_AS = {"auto": "without padding", "none": "with padding"}
CHECKED_BY = {
    "cpu": "the CPU ran both",
    "twin": "executable twins stood in for operators that the CPU lacks",
    "not run": "nothing was run, so nothing is known of the result",
}


def print_optimized(screen: Screen, optimized: Optimized, source: Path) -> None:
    """Print each group of equal attention, then the passes, what is taken for granted, and what was checked."""
    for name, site in groups(optimized.sites):
        screen.out.print(Text(shown(name, LONGEST_TEXT), "bold"))
        screen.out.print(site_table(site))
        screen.out.print()
    screen.out.print(summary_table(optimized, source))
    if not optimized.changed:
        screen.out.print(Text("\nNothing was changed: the file is the source, and the notes say why.", "yellow"))


def groups(sites: Iterable[OptimizedSite]) -> Iterator[tuple[str, OptimizedSite]]:
    """Yield the attention of which the same is told, as its names with ranges of a number, and one of it."""
    alike: dict[object, list[OptimizedSite]] = {}
    for site in sites:
        refused = tuple((kernel, tuple(reasons)) for kernel, reasons in site.refused.items())
        alike.setdefault((site.mask, site.source_form, site.kernel, site.why, refused), []).append(site)
    for group in alike.values():
        names = ", ".join(name for name, _ in joined(site.name for site in group))
        yield names + (f" ({len(group)})" if len(group) > 1 else ""), group[0]


def site_table(site: OptimizedSite) -> Table:
    """Return what one attention was and became."""
    table = _lines(width=7)
    table.add_row("  mask", Text(shown(site.mask, LONGEST_TEXT), "cyan"))
    table.add_row("  was", Text(shown(site.source_form)))
    table.add_row(
        "  became", Text(shown(site.kernel, LONGEST_TEXT), "green" if site.kernel != site.source_form else "")
    )
    table.add_row("  why", Text(shown(site.why, LONGEST_REASON)))
    for kernels, reasons in refusals(site):
        table.add_row("  not", Text(kernels) + Text(f": {reasons}", "dim"))
    return table


def refusals(site: OptimizedSite) -> list[tuple[str, str]]:
    """Return the better kernels that were refused, those of the same reasons together, and the reasons."""
    by_reasons: dict[str, list[str]] = {}
    for kernel, reasons in site.refused.items():
        by_reasons.setdefault(shown("; ".join(reasons), LONGEST_REASON), []).append(kernel)
    return [(", ".join(kernels), reasons) for reasons, kernels in by_reasons.items()]


def summary_table(optimized: Optimized, source: Path) -> Table:
    """Return what was done, what it rests on, and what was written."""
    table = _lines(width=13)
    wanted = optimized.target + (f", {optimized.dtype}" if optimized.dtype else "")
    table.add_row("target", wanted)
    changed = [f"{name} {count}" for name, count in optimized.passes if count]
    if changed:
        table.add_row("passes", ", ".join(changed))
    if optimized.changed:
        table.add_row("padding rows", PADDING_ROWS[optimized.padding_rows])
    for words in assumptions(optimized.assumes):
        table.add_row("assumed", Text(f"{words}; Session checks it at every run", "yellow"))
    proof = optimized.proof
    if proof is not None:
        runs = plural(len(proof.record.cases), "run")
        table.add_row("checked", Text(f"{runs} of source and result, by {proof.record.how}"))
        table.add_row("", f"largest difference on valid rows {error_text(proof.worst)}")
        not_run(table, proof.record.not_run)
    elif optimized.changed:
        table.add_row("checked", Text(CHECKED_BY[optimized.checked], "yellow"))
    for answer in optimized.measured:
        for line in timings(answer):
            table.add_row("measured", Text(line))
    for note in (*optimized.notes, *(proof.notes if proof is not None else ())):
        table.add_row("note", Text(shown(note, LONGEST_REASON)))
    if optimized.path is not None:
        sizes = f"{megabytes(optimized.path):.1f} MB, {source.name} has {megabytes(source):.1f}"
        table.add_row("wrote", Text(f"{optimized.path}, {sizes}"))
    return table


def assumptions(assumes: Iterable[dict[str, Any]]) -> list[str]:
    """Return what is taken for granted in words, each once, with what asks for it."""
    by_fact: dict[str, dict[str, None]] = {}
    for entry in assumes:
        sources = by_fact.setdefault(in_words(entry), {})
        if entry.get("source"):
            sources[str(entry["source"])] = None
    return [
        fact + (f" ({', '.join(name for name, _ in joined(sources))})" if sources else "")
        for fact, sources in by_fact.items()
    ]


def timings(answer: Answer) -> list[str]:
    """Return what was measured, a line for each shape: the fastest first."""
    ends = " (kept from before)" if answer.from_cache else ""
    lines = []
    for shape, seconds in answer.seconds.items():
        ranked = sorted(seconds, key=seconds.__getitem__)
        times = ", ".join(f"{PACKED_AS.get(name, name)} {1e3 * seconds[name]:.3g} ms" for name in ranked)
        lines.append(shown(f"{answer.what}, {shape}{ends}: {times}", LONGEST_REASON))
    return lines


def _lines(width: int) -> Table:
    table = plain_table("", "")
    table.show_header = False
    table.columns[0].min_width = width
    table.columns[0].no_wrap = True
    return table
