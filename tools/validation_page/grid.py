"""The cases of a validation as a grid for a page: sizes down, masks across, coloured by error relative to the limit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...export.cases.patterns import MORE_NAMES
from ..inspect_page import LONGEST_TEXT, code, table, text
from ..verdict import Check

# Bounds of the error relative to its limit, the class of a cell up to them, and what the legend says.
LEVELS = (
    (0.0, "l0", "equal"),
    (1e-3, "l1", "up to 1/1000 of the limit"),
    (1e-2, "l2", "1/100"),
    (1e-1, "l3", "1/10"),
    (1.0, "l4", "the limit"),
    (1e1, "x1", "10 times the limit"),
    (1e3, "x2", "1000 times"),
    (math.inf, "x3", "more, NaN, or an error"),
)
WORDS = {"nan": "NaN", "shape": "shape", "error": "error"}
BELOW = (("padding", "p"), ("empty", "e"))
MOST_LISTED = 2000


def grids(cases: Sequence[Check]) -> str:
    """Return a grid for each output, the legend, and a list of all figures."""
    if not cases:
        return ""
    outputs = dict.fromkeys(_output(case) for case in cases if case.metric != "error")
    drawn = []
    for output in outputs or {"": None}:
        # A run that failed gave no output at all.
        own = [case for case in cases if case.metric == "error" or _output(case) == output]
        head = f"<h3>Output {code(output)}</h3>\n" if output else ""
        drawn.append(f"{head}{_grid(own)}")
    return (
        f"<section>\n<h2>Cases</h2>\n<p>Each cell is one run of both sides: its largest difference on valid rows, "
        f"coloured by how much of the limit it is.</p>\n{''.join(drawn)}{_legend(cases)}{_list(cases)}</section>\n"
    )


def level(case: Check) -> str:
    """Return the class of a cell."""
    if case.metric != "max_abs" or not math.isfinite(case.value):
        return LEVELS[-1][1]
    if case.ok and case.value == 0:
        return LEVELS[0][1]
    ratio = case.value / case.limit if case.limit else math.inf
    return next(name for bound, name, _ in LEVELS[1:] if ratio <= bound)


def _output(case: Check) -> str:
    return "/".join(case.name.split("/")[2:])


def _sizes(case: Check) -> tuple[tuple[str, int], ...]:
    return tuple(case.sizes.items())


def _masks(case: Check) -> str:
    """Return what tells a case from others of its sizes: the padding, and what else is drawn for masks."""
    parts = (part.rpartition("=") for part in case.case.split(","))
    return ", ".join(value for _, mark, value in parts if mark and not value.isdigit()) or "–"


def _order(mask: str) -> tuple[int, str]:
    pattern = mask.partition(",")[0]
    return MORE_NAMES.index(pattern) if pattern in MORE_NAMES else len(MORE_NAMES), mask


def _grid(cases: Sequence[Check]) -> str:
    columns = sorted({_masks(case) for case in cases}, key=_order)
    rows = sorted({_sizes(case) for case in cases}, key=lambda sizes: [n for _, n in sizes])
    axes = list(dict.fromkeys(axis for sizes in rows for axis, _ in sizes))
    found: dict[tuple[tuple[tuple[str, int], ...], str], list[Check]] = {}
    for case in cases:
        found.setdefault((_sizes(case), _masks(case)), []).append(case)
    heads = "".join(f'<th scope="col">{text(column)}</th>' for column in columns)
    lines = []
    for sizes in rows:
        cells = "".join(_cell(found.get((sizes, column), [])) for column in columns)
        name = "&thinsp;×&thinsp;".join(str(n) for _, n in sizes) or "as declared"
        lines.append(f'<tr><th scope="row">{name}</th>{cells}</tr>')
    corner = " × ".join(text(axis) for axis in axes) or "sizes"
    return (
        f'<div class="scroll"><table class="grid"><thead><tr><th scope="col">{corner}</th>{heads}</tr></thead>\n'
        f"<tbody>{''.join(lines)}</tbody></table></div>\n"
    )


def _cell(cases: Sequence[Check]) -> str:
    if not cases:
        return '<td class="none"></td>'
    valid = [case for case in cases if case.rows == "valid"]
    worst = max(valid, key=lambda case: (not case.ok, case.metric != "max_abs", case.value), default=None)
    below = "".join(_mark(case, letter) for kind, letter in BELOW for case in cases if case.rows == kind)
    told = text("; ".join(_words(case) for case in cases), LONGEST_TEXT)
    figure = "–" if worst is None else _figure(worst)
    kind = "none" if worst is None else level(worst) + ("" if worst.ok else " wrong")
    return f'<td class="{kind}" title="{told}"><b>{figure}</b><span class="below">{below or "&nbsp;"}</span></td>'


def _figure(case: Check) -> str:
    # One digit, so that a row of cells fits a narrow page: the title has more.
    number = f"{case.value:.0e}".replace("e-0", "e-").replace("e+0", "e") if case.value else "0"
    shown = WORDS.get(case.metric, number)
    return shown if case.ok else f"✗&nbsp;{shown}"


def _mark(case: Check, letter: str) -> str:
    return f"<i>{letter}</i>" if case.ok else f'<i class="wrong">{letter}&thinsp;✗</i>'


def _words(case: Check) -> str:
    if case.metric == "max_abs":
        part = f", {case.value / case.limit:.1g} times the limit {case.limit:.1e}" if case.limit else ""
        return f"{case.rows} rows differ by {case.value:.2e}{part}"
    if case.metric == "non_finite" and case.ok:
        return f"{case.rows} rows are finite" + (f", and differ by {case.difference:.2e}" if case.difference else "")
    return str(case).partition(": ")[2]


def _legend(cases: Sequence[Check]) -> str:
    items = "".join(f'<li><span class="swatch {name}"></span> {words}</li>' for _, name, words in LEVELS)
    kinds = {case.rows for case in cases}
    below = {
        "padding": "<b>p</b> padding rows are finite",
        "empty": "<b>e</b> rows without a key are finite",
    }
    items += "".join(f"<li>{words}</li>" for kind, words in below.items() if kind in kinds)
    return f'<ul class="legend">{items}<li>✗ is over the limit or broken</li><li>– has no valid row</li></ul>\n'


def _list(cases: Sequence[Check]) -> str:
    rows = [
        [
            ("case", text(case.case)),
            ("output", code(_output(case)) if _output(case) else "–"),
            ("rows", case.rows),
            ("result", '<span class="good">✓ ok</span>' if case.ok else '<span class="bad">✗ failed</span>'),
            ("figure", text(_words(case), LONGEST_TEXT)),
        ]
        for case in sorted(cases, key=lambda case: case.ok)[:MOST_LISTED]
    ]
    failed = sum(not case.ok for case in cases)
    told = f"All {len(cases)} figures" + (f", the {failed} that failed first" if failed else "")
    if len(cases) > MOST_LISTED:
        told += f"; {len(cases) - MOST_LISTED} more are in the JSON"
    return f"<details><summary>{told}</summary>{table('figures-run', rows)}</details>\n"
