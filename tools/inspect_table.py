"""A report on a model's attention as text that fits 80 columns."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from ..export.report import Report
from .picture import legend, picture, text
from .screen import Screen
from .shown import plural, shown
from .site_groups import MaskGroup, by_facts, by_mask, heads, notes
from .tables import plain_table

LONGEST_MASK = 300
LONGEST_REASON = 300


def print_report(screen: Screen, report: Report) -> None:
    """Print the sites, each distinct mask with a picture, and what was not understood."""
    out = screen.out
    groups = by_mask(report)
    if groups:
        out.print(sites_table(groups))
        pictures = [picture(group.mask, cross=group.cross) for group in groups]
        for group, drawn in zip(groups, pictures, strict=True):
            out.print(Text(f"\n{group.label}  ", "bold") + Text(shown(str(group.mask), LONGEST_MASK), "cyan"))
            if drawn.caption:
                out.print(Text(drawn.caption, "dim"))
            out.print(text(drawn))
        out.print(Text("\n") + legend(*pictures))
    if report.unlifted:
        out.print(("\n" if groups else "") + "Not understood")
        out.print(unlifted_table(report))
    if groups or report.unlifted:
        out.print()
    out.print(conclusion(report, len(groups)))


def sites_table(groups: list[MaskGroup]) -> Table:
    """Return one line for the sites that are alike but for a number in their names, and a line per note."""
    table = plain_table("attention", "form", ">heads", "mask", "empty rows")
    table.columns[1].max_width = 18
    for column in table.columns[2:]:
        column.no_wrap = True
    for group in groups:
        for name, sites in by_facts(group.sites):
            site = sites[0]
            table.add_row(Text(shown(name)), Text(shown(site.form)), heads(site), group.label, site.empty_rows)
            for what, value in notes(site):
                table.add_row(Text(f"  {what} {shown(value)}", "dim"))
            if not site.verified:
                table.add_row(Text(f"  {shown(site.note or 'not run', LONGEST_REASON)}", "yellow"))
    return table


def unlifted_table(report: Report) -> Table:
    """Return each node that was not understood, and why."""
    table = plain_table("node", "why")
    for unlifted in report.unlifted:
        style = "yellow" if unlifted.attention else "dim"
        table.add_row(Text(shown(unlifted.node, 30), style), Text(shown(unlifted.reason, LONGEST_REASON)))
    return table


def conclusion(report: Report, masks: int) -> Text:
    """Return the report in a sentence."""
    if not report.sites and not report.unlifted:
        return Text(f"{shown(report.model)} has no attention.")
    line = Text(f"{shown(report.model)}: {plural(len(report.sites), 'attention')}, {plural(masks, 'distinct mask')}")
    claimed = sum(site.claimed for site in report.sites)
    if claimed:
        line += Text(f", {claimed} as the file claims", "yellow")
    if not_run := sum(not site.verified for site in report.sites) - claimed:
        line += Text(f", {not_run} not run against the graph", "yellow")
    elif report.sites and not claimed:
        line += Text(", each run against the graph", "green")
    if unread := sum(unlifted.attention for unlifted in report.unlifted):
        line += Text(f", {unread} not understood", "bold red")
    return line + Text(".")
