"""A result as tables that fit 80 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..tables import plain_table
from .candidates import ROW_BY_ROW
from .compare import Found
from .result import OK, UNAVAILABLE, Entry, Result, Timed

HEADINGS = {"fill": "real tokens", "batch": "rows", "length": "tokens of the longest row"}


def result_tables(result: Result) -> Group:
    """Return everything that a person reads: the first point in full, the sweeps in short, what is wrong."""
    first, *sweeps = result.points
    parts: list[RenderableType] = [_head(result, first), "", _full(result, first), "", *_summary(result, first)]
    for name in dict.fromkeys(point.name for point in sweeps):
        parts += ["", _sweep(result, name, [point for point in sweeps if point.name == name])]
    return Group(*parts, "", _padding(result), *_notes(result), "", *_machine(result, first))


def _head(result: Result, point: Timed) -> Text:
    rounds = max((len(seconds) for seconds in point.seconds.values()), default=0)
    return Text(
        f"{result.what}\n{point}; medians of {rounds} interleaved rounds, ratios to {result.base(point)}\n"
        f"right is what {result.reference} says"
    )


def _full(result: Result, point: Timed) -> Table:
    base = result.base(point)
    table = plain_table("", ">ms", ">ratio", ">quartiles", ">peak MB", ">make s", ">load s")
    for entry in sorted(_timed(result, point), key=lambda entry: point.median(entry.name)):
        ratio, low, high = point.ratio(entry.name, base)
        memory = point.megabytes[entry.name]
        table.add_row(
            _name(entry, point),
            f"{point.median(entry.name):.0f}" if point.median(entry.name) >= 100 else f"{point.median(entry.name):.3g}",
            f"{ratio:.2f}",
            f"{low:.2f}-{high:.2f}",
            "-" if memory is None else f"{memory:.0f}",
            _seconds(entry.made_seconds),
            _seconds(entry.load_seconds),
        )
    return table


def _timed(result: Result, point: Timed) -> list[Entry]:
    return [entry for entry in result.entries if entry.name in point.seconds]


def _name(entry: Entry, point: Timed) -> str:
    return f"{escape(entry.name)} [bold red]wrong[/]" if entry.name in point.faults else escape(entry.name)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value >= 0.1 else f"{value:.2f}"


def _summary(result: Result, point: Timed) -> list[Text]:
    base = result.base(point)
    return [
        Text(f"best of {line['group']}: {line['name']}, {line['ratio']:.2f} times as long as {base}")
        for line in result.summary(point)
        if line["name"] != base
    ]


def _sweep(result: Result, name: str, points: list[Timed]) -> Table:
    labels = {"fill": "{0.real:.0%}", "batch": "{0.batch}", "length": "{0.length}"}
    fixed = {"fill": "{0.batch} x {0.length}", "batch": "x {0.length}", "length": "{0.batch} x"}[name].format(points[0])
    table = plain_table(f"ms by {HEADINGS[name]} ({fixed})", *(f">{labels[name].format(point)}" for point in points))
    for entry in result.entries:
        if any(entry.name in point.seconds or entry.name in point.faults for point in points):
            cells = [_cell(entry, point) for point in points]
            table.add_row(escape(entry.name), *cells)
    return table


def _cell(entry: Entry, point: Timed) -> str:
    if entry.name not in point.seconds:
        return "[red]failed[/]" if entry.name in point.faults else "-"
    text = f"{point.median(entry.name):.4g}" if point.median(entry.name) < 1e4 else f"{point.median(entry.name):.0f}"
    return f"[red]wrong[/] {text}" if entry.name in point.faults else text


def _padding(result: Result) -> Table:
    patterns = list(dict.fromkeys(pattern for entry in result.entries for pattern in entry.padding))
    table = plain_table("largest error on valid rows, small batches", *(f">{pattern}" for pattern in patterns))
    for entry in result.entries:
        if entry.padding:
            table.add_row(escape(entry.name), *(_error(entry.padding[pattern]) for pattern in patterns))
    return table


def _error(found: Found) -> str:
    text = "failed" if found.error is None else f"{found.error:.0e}" if found.error else "0"
    return f"[red]wrong {text}[/]" if found.wrong and found.error is not None else text


def _notes(result: Result) -> list[Text]:
    notes = []
    for entry in result.entries:
        told = [f"{name}: {found.wrong}" for name, found in entry.padding.items() if found.error is None]
        if entry.status != OK:
            told.insert(0, f"{entry.status}: {entry.why}" if entry.status == UNAVAILABLE or entry.why else entry.status)
        if entry.setting:
            told.append(f"fastest with {' '.join(f'{name}={value}' for name, value in entry.setting.items())}")
        if entry.told and not entry.name.endswith(ROW_BY_ROW):
            told.append(entry.told)
        notes += [Text(f"{entry.name}: {line}", style="dim") for line in told]
    return [Text(), *notes] if notes else []


def _machine(result: Result, point: Timed) -> list[Text]:
    about = result.machine
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    memory = "" if about["memory_gb"] is None else f", {about['memory_gb']:.0f} GB"
    return [
        Text(f"{about['cpu']}, {about['cores']} cores, each candidate with as many threads{memory}"),
        Text(f"{about['system']}, Python {about['python']}, {versions}"),
        *([Text(f"other processes used {point.elsewhere:.0%} of the cores")] if point.elsewhere is not None else []),
    ]
