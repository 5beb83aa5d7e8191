"""A report on a model's attention as one page: no script, no network, light and dark, narrow and wide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from ..export.report import Report, SiteReport, describe_mask
from .inspect_style import STYLE
from .picture import MARKS, Picture, picture
from .shown import plural, shown
from .site_groups import MaskGroup, by_facts, by_mask, heads, notes

LONGEST_NAME = 120
LONGEST_TEXT = 600
MOST_NODES = 60


def write_page(report: Report, path: Path) -> None:
    """Write the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(report), encoding="utf-8")


def page(report: Report, *, command: str = "inspect", sections: str = "") -> str:
    """Return the page as HTML; `sections` of another command stand before the masks."""
    groups = by_mask(report)
    pictures = [picture(group.mask, cross=group.cross) for group in groups]
    attention = [unlifted for unlifted in report.unlifted if unlifted.attention]
    parts = [
        _header(report, command, len(groups), len(attention)),
        sections,
        *(_mask_section(group, drawn) for group, drawn in zip(groups, pictures, strict=True)),
        _unlifted_section(report),
        _footer(pictures),
    ]
    return document(f"Attention of {text(report.model)}", "".join(parts))


def document(title: str, body: str, style: str = "") -> str:
    """Return a page; all is HTML already, and `style` is added to the style sheet."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{title}</title>\n<style>{STYLE}{style}</style>\n'
        f"</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )


def text(what: str, longest: int = LONGEST_NAME) -> str:
    """Return a text of the graph as HTML."""
    return escape(shown(what, longest))


def code(what: str, longest: int = LONGEST_NAME) -> str:
    """Return a name of the graph; it may be written from right to left, and must not turn its neighbours."""
    return f"<bdi><code>{text(what, longest)}</code></bdi>"


def _header(report: Report, command: str, masks: int, unread: int) -> str:
    not_run = sum(not site.verified for site in report.sites)
    figures = [
        (len(report.sites), "attention" if len(report.sites) == 1 else "attentions", ""),
        (masks, "distinct mask" if masks == 1 else "distinct masks", ""),
        (len(report.sites) - not_run, "run against the graph", "good" if report.sites and not not_run else ""),
        (unread, "not understood", "bad" if unread else ""),
    ]
    return (
        f'<header>\n<p class="over">maskport {command}</p>\n<h1><bdi>{text(report.model)}</bdi></h1>\n'
        f"{figures_list(figures)}</header>\n"
    )


def figures_list(figures: Iterable[tuple[object, str, str]]) -> str:
    """Return large figures, each with what it is and the class of its colour."""
    items = "".join(f'<div class="{kind}"><dt>{what}</dt><dd>{n}</dd></div>' for n, what, kind in figures)
    return f'<dl class="figures">{items}</dl>\n'


def _mask_section(group: MaskGroup, drawn: Picture) -> str:
    return (
        f'<section>\n<h2><span class="label">{group.label}</span> {code(str(group.mask), LONGEST_TEXT)}</h2>\n'
        f'<div class="mask">\n<figure>\n<div class="panels">{"".join(_panels(drawn))}</div>\n'
        f"{_caption(drawn)}</figure>\n<div>\n{_facts(group)}{_nodes(group)}</div>\n</div>\n"
        f"{_sites(group.sites)}</section>\n"
    )


def _caption(drawn: Picture) -> str:
    lengths = f"{len(drawn.q)} queries down, {len(drawn.k)} keys across"
    caption = f"{lengths}; {drawn.caption}" if drawn.caption else lengths
    return f"<figcaption>{text(caption, LONGEST_TEXT)}</figcaption>\n"


CELL = 16


def _panels(drawn: Picture) -> Iterable[str]:
    """Yield each panel as an SVG: one path per kind of cell, so that a page of many masks stays small."""
    margin = 8 + 7 * len(str(drawn.q[-1]))
    top = 14 if drawn.consecutive else 2
    width, height = margin + CELL * len(drawn.k) + 1, top + CELL * len(drawn.q) + 1
    for title, cells in zip(drawn.titles, drawn.cells, strict=True):
        paths = []
        for place, (_, _, kind, _) in enumerate(MARKS):
            at = "".join(
                f"M{margin + CELL * column} {top + CELL * row}h{CELL - 2}v{CELL - 2}h-{CELL - 2}z"
                for row, line in enumerate(cells)
                for column, cell in enumerate(line)
                if cell == place
            )
            if at:
                paths.append(f'<path class="{kind}" d="{at}"/>')
        labels = [
            f'<text x="{margin - 5}" y="{top + CELL * row + 11}" text-anchor="end">{q}</text>'
            for row, q in enumerate(drawn.q)
        ]
        if drawn.consecutive:
            labels += [
                f'<text x="{margin + CELL * column + 7}" y="9" text-anchor="middle">{k}</text>'
                for column, k in enumerate(drawn.k)
            ]
        shape = f"{len(drawn.q)} queries and {len(drawn.k)} keys"
        head = f'<span class="panel-title">{escape(title)}</span>' if title else ""
        yield (
            f'<div class="panel">{head}<svg role="img" aria-label="The mask at {shape} {escape(title)}" '
            f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">{"".join(paths + labels)}</svg></div>'
        )


def _facts(group: MaskGroup) -> str:
    known = describe_mask(group.mask)
    sides = [("left", known["left"]), ("right", known["right"])]
    window = [f"{side} {n}" for side, n in sides if n != -1]
    rows = [("causal", "yes" if known["causal"] else "no"), ("window", ", ".join(window) or "unbounded")]
    rows += [(kind, ", ".join(code(name) for name in known[kind])) for kind in ("padding", "segments", "dense")]
    if not known["exact"]:
        rows.append(("note", "the expression says more than these facts"))
    assumed = dict.fromkeys(pair for site in group.sites for pair in site.assumes)
    rows.append(("assumed", "<br>".join(f"{code(name)} is {escape(check)}" for name, check in assumed) or "nothing"))
    return facts(rows)


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Return a list of facts, each with its name; those without a value are left out."""
    items = "".join(f"<dt>{what}</dt><dd>{value}</dd>" for what, value in rows if value)
    return f'<dl class="facts">{items}</dl>\n'


def _nodes(group: MaskGroup) -> str:
    nodes = list(group.nodes)
    if not nodes:
        return "<p>The mask is in the operators' attributes and inputs; no node computes it.</p>\n"
    items = "".join(f"<li>{code(name)} <span>{text(operator)}</span></li>" for name, operator in nodes[:MOST_NODES])
    if len(nodes) > MOST_NODES:
        items += f"<li>and {len(nodes) - MOST_NODES} more</li>"
    count = plural(len(nodes), "node")
    return f'<details><summary>Read from {count}</summary><ol class="nodes">{items}</ol></details>\n'


def _sites(sites: Iterable[SiteReport]) -> str:
    rows = []
    for name, alike in by_facts(sites):
        site = alike[0]
        more = "".join(f"<div>{what} {code(value)}</div>" for what, value in notes(site))
        if not site.verified:
            more += f'<div class="warn">{text(site.note or "not run", LONGEST_TEXT)}</div>'
        checked = '<span class="good">run</span>' if site.verified else '<span class="warn">not run</span>'
        cells = [
            ("attention", f"{code(name)}{f' <span>×&nbsp;{len(alike)}</span>' if len(alike) > 1 else ''}"),
            ("form", text(site.form)),
            ("heads", heads(site)),
            ("empty rows", site.empty_rows),
            ("checked", checked),
            ("notes", more or "–"),
        ]
        rows.append(cells)
    return table("sites", rows)


def table(kind: str, rows: Sequence[Sequence[tuple[str, str]]]) -> str:
    """Return a table whose cells name their columns, so that a narrow page can set a row as a list."""
    titles = "".join(f"<th>{what}</th>" for what, _ in rows[0])
    lines = (
        "<tr>" + "".join(f'<td data-label="{what}"><div>{value}</div></td>' for what, value in row) + "</tr>"
        for row in rows
    )
    return f'<table class="{kind}"><thead><tr>{titles}</tr></thead><tbody>{"".join(lines)}</tbody></table>\n'


def _unlifted_section(report: Report) -> str:
    if not report.unlifted:
        return ""
    rows = [
        [
            ("node", code(unlifted.node)),
            ("attention", "yes" if unlifted.attention else "no"),
            ("why", text(unlifted.reason, LONGEST_TEXT)),
        ]
        for unlifted in report.unlifted
    ]
    return f"<section>\n<h2>Not understood</h2>\n{table('unread', rows)}</section>\n"


def _footer(pictures: list[Picture]) -> str:
    used = sorted({int(cell) for drawn in pictures for cell in drawn.cells.flat})
    items = "".join(
        f'<li><svg width="14" height="14" aria-hidden="true"><path class="{MARKS[cell][2]}" d="M0 0h14v14h-14z"/></svg>'
        f" {MARKS[cell][3]}</li>"
        for cell in used
    )
    return (
        f'<footer>\n<ul class="legend">{items}</ul>\n<p>Pictures are samples; the expression holds at all lengths. '
        "<em>Run</em> means that the part of the graph which computes the mask was run, and agreed with the expression "
        "entry by entry. <em>Empty rows</em> are queries without any key: what the graph gives for them.</p>\n"
        "</footer>\n"
    )
