"""A dry run as one page: a timeline by node; no script, no network, light and dark."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from ..inspect_page import document, figures_list
from ..shown import plural, shown
from .kernels import OPERATORS, short_name
from .trace import COPIES, Action, AttentionKernel, RanNode, Trace

LONGEST_NAME = 120
LONGEST_LINE = 400
MARK, GAP, LANE = 5, 2, 20
MARKS_IN_A_ROW = 130

# The lanes of the picture, from above: title, class, and what it says in the legend.
LANES = (
    ("attention", "good", "attention kernel"),
    ("kernel", "attends", "other kernel"),
    ("library", "depends", "library call: a matrix product, most often"),
    ("copy", "bad", "copy between host and device"),
    ("device", "not", "copy or fill on the device"),
    ("wait", "warn", "the host waits"),
    ("CPU", "soft", "node on the CPU"),
)
PLACES = {name: place for place, (name, _, _) in enumerate(LANES)}
MORE_STYLE = """
.strip .good { fill: var(--good); } .strip .bad { fill: var(--bad); } .strip .warn { fill: var(--warn); }
.strip .soft { fill: var(--soft); } .legend .good { fill: var(--good); } .legend .bad { fill: var(--bad); }
.legend .warn { fill: var(--warn); } .legend .soft { fill: var(--soft); }
.nodes-run th:nth-child(1) { width: 30%; } .nodes-run th:nth-child(2) { width: 18%; }
.nodes-run th:nth-child(3) { width: 10%; }
.strip { margin: 0 0 12px; }
"""


def write_page(trace: Trace, path: Path) -> None:
    """Write the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(trace), encoding="utf-8")


def page(trace: Trace) -> str:
    """Return the page as HTML."""
    parts = (_header(trace), _attention(trace.attention), _timeline(trace), _nodes(trace), _footer(trace))
    return document(f"Dry run of {_text(trace.model)}", "".join(parts), MORE_STYLE)


def _text(text: str, longest: int = LONGEST_NAME) -> str:
    return escape(shown(text, longest))


def _name(text: str) -> str:
    """Return a name of the graph; it may be written from right to left, and must not turn its neighbours."""
    return f"<bdi><code>{_text(text)}</code></bdi>"


def _header(trace: Trace) -> str:
    inside = sum(trace.copies(kind, inside=True) for kind in ("h2d", "d2h"))
    graph = {True: ("yes", "good"), False: ("no", "bad"), None: ("not tried", "")}[trace.cuda_graph.capturable]
    figures = [
        (trace.launches, "launches", ""),
        (trace.library_calls, "of them library calls", ""),
        (inside, "copies to and from the host between nodes", "bad" if inside else "good"),
        (f"{trace.memory / 1e6:.0f} MB", "device memory at peak", ""),
        (graph[0], "CUDA graph", graph[1]),
    ]
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in trace.inputs.items())
    return (
        f'<header>\n<p class="over">maskport dryrun, sm {trace.sm} ({trace.gpu}), ONNX Runtime {trace.onnxruntime}, '
        f"{_text(shapes, LONGEST_LINE)}</p>\n<h1><bdi>{_text(trace.model)}</bdi></h1>\n"
        f"{figures_list(figures)}</header>\n"
    )


def _attention(sites: Sequence[AttentionKernel]) -> str:
    if not sites:
        return ""
    rows = [
        (
            ("attention", _name(site.name or site.node)),
            ("operator", _text(site.op_type)),
            ("kernel", _text(site.kernel) + (f"<div><span>{_text(site.why)}</span></div>" if site.why else "")),
            ("launches", str(site.launches)),
            ("mask", "–" if site.mask is None else _name(site.mask)),
        )
        for site in sites
    ]
    return f"<section>\n<h2>Attention</h2>\n{_table('', rows)}</section>\n"


def _lane(step: Action | RanNode, attention: Collection[str | None]) -> str | None:
    if isinstance(step, RanNode):
        return "CPU" if step.provider != "CUDA" else None
    if step.kind == "copy":
        return "copy" if step.name in ("h2d", "d2h") else "device"
    if step.launch and (step.node in attention or step.op_type in OPERATORS):
        return "attention"
    return {"kernel": "kernel", "library": "library", "memset": "device", "sync": "wait"}.get(step.kind)


def _steps(trace: Trace) -> list[Action | RanNode]:
    steps: list[Action | RanNode] = [*trace.actions, *trace.nodes]
    return sorted(steps, key=lambda step: step.order)


def _timeline(trace: Trace) -> str:
    attention: set[str | None] = {site.node for site in trace.attention}
    marks = [(lane, step) for step in _steps(trace) if (lane := _lane(step, attention)) is not None]
    strips = [_strip(marks[start : start + MARKS_IN_A_ROW]) for start in range(0, len(marks), MARKS_IN_A_ROW)]
    square = '<svg width="14" height="14" aria-hidden="true"><path class="{}" d="M0 0h14v14h-14z"/></svg>'
    items = "".join(
        f"<li>{square.format(kind)} {what}</li>" for name, kind, what in LANES if any(lane == name for lane, _ in marks)
    )
    return f'<section>\n<h2>In order, not in time</h2>\n{"".join(strips)}<ul class="legend">{items}</ul>\n</section>\n'


def _strip(marks: Sequence[tuple[str, Action | RanNode]]) -> str:
    width, height = MARKS_IN_A_ROW * (MARK + GAP), LANE * len(LANES)
    drawn = []
    for place, (lane, step) in enumerate(marks):
        row = PLACES[lane]
        what = step.op_type if isinstance(step, RanNode) else short_name(step.name)
        title = f"{step.node or 'between nodes'}: {what}"
        drawn.append(
            f'<rect class="{LANES[row][1]}" x="{place * (MARK + GAP)}" y="{row * LANE + 3}" width="{MARK}" '
            f'height="{LANE - 6}"><title>{_text(title, LONGEST_LINE)}</title></rect>'
        )
    return (
        f'<svg class="strip" role="img" aria-label="{plural(len(marks), "action")} in order" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}">{"".join(drawn)}</svg>'
    )


def _nodes(trace: Trace) -> str:
    """Return a row for each node that did something or ran on the CPU, and for what was done between nodes."""
    rows = []
    steps = [step for step in _steps(trace) if _lane(step, ()) is not None]
    for node, group in groupby(steps, key=lambda step: step.node):
        found = list(group)
        on_cpu = any(isinstance(step, RanNode) for step in found)
        chips = "<br>".join(_chip(step) for step in found if isinstance(step, Action))
        rows.append(
            (
                ("node", _name(node) if node else "–"),
                ("operator", _text(found[0].op_type or "–")),
                ("where", "CPU" if on_cpu else "CUDA" if node else "–"),
                ("what", chips or "–"),
            )
        )
    if not rows:
        return ""
    return f"<section>\n<h2>By node</h2>\n{_table('nodes-run', rows)}</section>\n"


def _chip(action: Action) -> str:
    if action.kind == "copy":
        known = ", its value computed on the CPU" if action.answered else ""
        kind = {"h2d": "to the device", "d2h": "to the host", "d2d": "on the device"}.get(action.name, "on the host")
        return f"copy {kind}, {action.bytes} bytes{known}"
    detail = f" <span>{_text(action.detail)}</span>" if action.detail else ""
    return f"<code>{_text(short_name(action.name))}</code>{detail}"


def _table(kind: str, rows: Sequence[Sequence[tuple[str, str]]]) -> str:
    """Return a table whose cells name their columns, so that a narrow page can set a row as a list."""
    titles = "".join(f"<th>{what}</th>" for what, _ in rows[0])
    lines = (
        "<tr>" + "".join(f'<td data-label="{what}"><div>{value}</div></td>' for what, value in row) + "</tr>\n"
        for row in rows
    )
    return f'<table class="{kind}"><thead><tr>{titles}</tr></thead><tbody>{"".join(lines)}</tbody></table>\n'


def _footer(trace: Trace) -> str:
    copies = ", ".join(f"{trace.copies(kind)} {kind}" for kind in COPIES)
    lines = [
        f"Copies: {copies}; waits of the host: {trace.syncs}.",
        "The host code was ONNX Runtime's own; no kernel ran, so that times and values are unknown.",
        *([f"No CUDA graph: {trace.cuda_graph.reason}."] if trace.cuda_graph.capturable is False else []),
        *(f"Not faithful: {line}." for line in trace.not_faithful),
    ]
    return "<footer>\n" + "".join(f"<p>{_text(line, LONGEST_LINE)}</p>\n" for line in lines) + "</footer>\n"
