"""What two models differ in, as text that fits 80 columns."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from rich.table import Table
from rich.text import Text

from ..models.masks import Witness
from .mask_diff import Diff, MaskChange, SiteDiff
from .picture import difference, legend, text
from .screen import Screen
from .shown import joined, plural, shown
from .tables import plain_table

LONGEST_MASK = 300
LONGEST_TENSOR = 12
WORDS = {"q_heads": "heads", "kv_heads": "key heads", "head_size": "head size", "cross": "cross attention"}


def print_diff(screen: Screen, found: Diff) -> None:
    """Print each change once, with the sites that share it, and a conclusion."""
    for name, was, site in _changes(found):
        screen.out.print(Text(shown(name), "bold"))
        if was != name:
            screen.out.print(Text(f"  was {shown(was)}", "dim"))
        table = plain_table("", "")
        table.show_header = False
        if site.mask is not None:
            _add(table, "mask", str(site.mask.old), str(site.mask.new))
        for what, (old, new) in site.facts.items():
            _add(table, WORDS.get(what, what), *map(_value, (old, new)))
        screen.out.print(table)
        if site.mask is not None:
            _print_mask(screen, site.mask, site.old.cross or site.new.cross)
        screen.out.print()
    for what, style, lone in (("removed", "bold red", found.removed), ("added", "bold green", found.added)):
        for alone in lone:
            mask = Text(shown(str(alone.mask), LONGEST_MASK), "cyan")
            screen.out.print(Text(f"{what} ", style) + Text(f"{shown(alone.name)}  ") + mask)
    if found.removed or found.added:
        screen.out.print()
    screen.out.print(conclusion(found))


def _changes(found: Diff) -> Iterable[tuple[str, str, SiteDiff]]:
    """Yield each change with the new and the old name of the sites that share it, numbers of both as ranges."""
    alike: dict[object, list[SiteDiff]] = {}
    for site in found.sites:
        if site.changed:
            masks = None if site.mask is None else (site.mask.old, site.mask.new)
            alike.setdefault((masks, tuple(site.facts.items())), []).append(site)
    for sites in alike.values():
        for name, places in joined([site.new.name for site in sites]):
            was = joined([sites[place].old.name for place in places])
            yield name, ", ".join(old for old, _ in was), sites[places[0]]


def _add(table: Table, what: str, old: str, new: str) -> None:
    table.add_row(f"  {what}", Text("- ", "red") + Text(shown(old, LONGEST_MASK)))
    table.add_row("", Text("+ ", "green") + Text(shown(new, LONGEST_MASK)))


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _print_mask(screen: Screen, change: MaskChange, cross: bool) -> None:
    for old, new in change.renamed.items():
        screen.out.print(Text(f"  the same mask, but the tensor {shown(old)} is now {shown(new)}", "yellow"))
    if change.why is not None:
        screen.out.print(Text(f"  {change.why}", "yellow"))
    if change.witness is not None:
        screen.out.print(Text(f"  {witness_text(change.witness)}"))
        drawn = difference(change.old, change.new, change.witness, cross=cross)
        screen.out.print()
        if drawn.caption:
            screen.out.print(Text(drawn.caption, "dim"))
        screen.out.print(text(drawn))
        screen.out.print(legend(drawn))


def witness_text(witness: Witness) -> str:
    """Return the first difference in words."""
    q_len, k_len, past = witness.sizes
    at = f"first difference at b={witness.b}, q={witness.q}, k={witness.k}"
    if k_len == q_len + past:
        at += f", length {k_len}" + (f" with past {past}" if past else "")
    else:
        at += f", {q_len} queries, {k_len} keys" + (f" with past {past}" if past else "")
    return ", ".join([at, *(f"{shown(name)} {_elements(tensor)}" for name, tensor in witness.tensors.items())])


def _elements(tensor: np.ndarray) -> str:
    values = np.unique(tensor)
    if values.size == 1:
        return f"all {int(values[0])}"
    return str(tensor.astype(int).tolist()) if tensor.size <= LONGEST_TENSOR else f"of shape {list(tensor.shape)}"


def conclusion(found: Diff) -> Text:
    """Return the comparison in a sentence."""
    changed = sum(site.changed for site in found.sites)
    before, after = found.not_compared
    counts = (
        (len(found.sites) - changed, "the same", "green"),
        (changed, "changed", "bold red"),
        (len(found.removed), "removed", "bold red"),
        (len(found.added), "added", "bold red"),
    )
    parts = [Text(f"{plural(count, 'attention')} {what}", style) for count, what, style in counts if count]
    parts = parts or [Text("no attention in either")]
    for what, reports in (("old", found.old), ("new", found.new)):
        if claimed := sum(site.claimed for site in reports.sites):
            parts.append(Text(f"{claimed} as the {what} file claims", "yellow"))
    if before or after:
        style = "bold red" if after > before else "yellow"
        parts.append(Text(f"not understood and not compared: {before} of the old, {after} of the new", style))
    return Text(", ").join(parts) + Text(".")
