"""Expected against seen attention as pictures for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..inspect_page import LONGEST_TEXT, code, text
from ..shown import joined, plural
from .cells import AGREES, EXTRA, FAINT, MISSING, NOT, UNKNOWN, Panel, Seen, SeenAttention

# In a square of 14: where a path begins, and the path, which is relative.
FULL, SMALL = (0, 0, "h14v14h-14z"), (6, 6, "h2v2h-2z")
OUTLINE = (0, 0, "h14v14h-14zm2 2v10h10v-10z")
CROSS = (3.5, 4.9, "l1.4-1.4 2.1 2.1 2.1-2.1 1.4 1.4-2.1 2.1 2.1 2.1-1.4 1.4-2.1-2.1-2.1 2.1-1.4-1.4 2.1-2.1z")
DASH = (4, 6, "h6v2h-6z")
# Of a cell: its class, its paths, of which the second is a mark on the first, and what the legend says.
CELLS = {
    NOT: ("not", (FULL,), "not attended, as expected"),
    AGREES: ("attends", (FULL,), "attended, as expected"),
    EXTRA: ("extra", (FULL, CROSS), "attended, and must not be"),
    MISSING: ("missing", (OUTLINE, DASH), "must be attended, and is not"),
    FAINT: ("faint", (OUTLINE,), "expected through several layers, too faint to be seen"),
    UNKNOWN: ("unknown", (SMALL,), "not compared: the row is padding or has no key"),
}
CELL = 16
# A panel is about as wide as this, so that four stand side by side, and its cells are at least so wide.
WIDE, LEAST = 190, 9


def attention_section(found: SeenAttention) -> str:
    """Return the pictures, what they say in words, and their legend."""
    parts = [_one(seen) for seen in found.seen]
    used = sorted({int(cell) for seen in found.seen for panel in seen.panels for cell in np.unique(panel.cells)})
    items = "".join(f"<li>{_square(kind)} {CELLS[kind][2]}</li>" for kind in used)
    notes = "".join(f"<li>{text(note, LONGEST_TEXT)}</li>" for note in found.notes)
    told = f"<p>Expected: {text(found.expected, LONGEST_TEXT)}. Seen: what moved, and what has a weight.</p>\n"
    return (
        f"<section>\n<h2>Expected and seen attention</h2>\n{told if found.expected else ''}"
        + (f'<ul class="legend">{items}<li><b class="pad">p</b> a token of padding</li></ul>\n' if items else "")
        + "<hr>".join(parts)
        + (f'<ul class="notes">{notes}</ul>\n' if notes else "")
        + "</section>\n"
    )


def _one(seen: Seen) -> str:
    wrong = [
        f"{plural(count, 'pair')} {words}"
        for kind, words in ((EXTRA, "attended that must not be"), (MISSING, "missing"))
        if (count := seen.count(kind))
    ]
    told = f'<span class="bad">✗ {" and ".join(wrong)}</span>' if wrong else '<span class="good">✓ as expected</span>'
    if not seen.count(AGREES) and not wrong:
        told = '<span class="warn">– no pair was seen to be attended</span>'
    if seen.mask is None:
        axes = f"rows of {code(seen.rows)} down, tokens of {code(seen.tokens)} across"
        head = f"<h3>The model as a whole <span>{axes}</span></h3>\n<p>{told}: which rows move with which tokens.</p>\n"
    else:
        names = ", ".join(code(name, LONGEST_TEXT) for name, _ in joined(seen.names))
        head = f"<h3>{code(str(seen.mask), LONGEST_TEXT)}</h3>\n<p>{told}: the weights of {names}.</p>\n"
    return f'{head}<div class="panels">{"".join(_panels(seen.panels))}</div>\n'


def _panels(panels: Sequence[Panel]) -> Iterator[str]:
    for panel in panels:
        rows, columns = panel.cells.shape
        size = max(LEAST, min(CELL, WIDE // max(rows, columns)))
        scale, margin, top = size / CELL, 22, 14
        width, height = margin + size * columns, top + size * rows
        paths = "".join(_drawn(kind, np.argwhere(panel.cells == kind).tolist()) for kind in CELLS)
        # Numbers that would run into each other are left out; padding is always told.
        labels = [
            _label(margin - 6, top + size * (row + 0.72), "end", row, real)
            for row, real in enumerate(panel.real_rows)
            if size > 10 or row % 2 == 0
        ]
        labels += [
            _label(margin + size * (column + 0.45), 9, "middle", column, real)
            for column, real in enumerate(panel.real_tokens)
            if size > 12 or column % 4 == 0 or not real
        ]
        drawn = f'<g transform="translate({margin} {top}) scale({scale:g})">{paths}</g>{"".join(labels)}'
        title = text(panel.title)
        words = f"{rows} rows and {columns} tokens, {title}: {_counted(panel)}"
        yield (
            f'<div class="panel"><span class="panel-title">{title}</span><svg role="img" '
            f'aria-label="{words}" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
            f"<title>{words}</title>{drawn}</svg></div>"
        )


def _counted(panel: Panel) -> str:
    counts = ((int((panel.cells == kind).sum()), CELLS[kind][2]) for kind in (AGREES, EXTRA, MISSING))
    return "; ".join(f"{count} {words}" for count, words in counts if count) or "nothing attended"


def _drawn(kind: int, places: Sequence[Sequence[int]]) -> str:
    """Return the cells of a kind at places of rows and columns: one path for all areas, one for all marks."""
    name, shapes, _ = CELLS[kind]
    drawn = ""
    for part, (x, y, path) in zip((name, f"{name}-mark"), shapes, strict=False):
        at = "".join(f"M{CELL * column + x:g} {CELL * row + y:g}{path}" for row, column in places)
        drawn += f'<path class="{part}" fill-rule="evenodd" d="{at}"/>' if at else ""
    return drawn


def _label(x: float, y: float, anchor: str, number: int, real: bool) -> str:
    kind, shown = ("", str(number)) if real else (' class="pad"', "p")
    return f'<text{kind} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{shown}</text>'


def _square(kind: int) -> str:
    return f'<svg width="14" height="14" aria-hidden="true">{_drawn(kind, [(0, 0)])}</svg>'
