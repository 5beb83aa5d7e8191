"""A result as a picture, SVG or PNG by the name of its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import ToolError
from .candidates import OURS, ROW_BY_ROW
from .result import Result, Timed
from .table import HEADINGS

FORMATS = (".svg", ".png")
AXES: dict[str, Callable[[Timed], float]] = {
    "fill": lambda p: 100 * p.real,
    "batch": lambda p: p.batch,
    "length": lambda p: p.length,
}
OUR_COLOUR = "#c2410c"
COLOURS = ("#1d4ed8", "#0f766e", "#7c3aed", "#a16207", "#be185d", "#4d7c0f", "#0369a1", "#6b7280")


def check_plot(path: Path) -> None:
    """Refuse a file that can't be drawn before anything is measured.

    Raises
    ------
    ToolError
        If it is of another format, or matplotlib is missing.
    """
    import importlib.util

    if path.suffix not in FORMATS:
        raise ToolError(f"--plot names {path}; give a name that ends in {' or '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ToolError("--plot needs matplotlib; pip install 'maskport[bench]'")


def plot(result: Result, path: Path) -> None:
    """Draw the first point as bars, and each sweep as lines; what was wrong or failed is left out and named."""
    import matplotlib

    matplotlib.use("Agg")
    # The text stays text, and the same figures give the same file.
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "maskport", "font.size": 9}
    from matplotlib import pyplot

    first, *others = result.points
    sweeps = list(dict.fromkeys(point.name for point in others))
    colours = _colours(result)
    height = 1.2 + 0.26 * len(first.seconds)
    figure, panels = pyplot.subplots(
        1 + len(sweeps),
        figsize=(8, height + 3.2 * len(sweeps)),
        height_ratios=[height, *[3.2] * len(sweeps)],
        squeeze=False,
        layout="constrained",
    )
    _bars(panels[0][0], result, first, colours)
    for (panel,), name in zip(panels[1:], sweeps, strict=True):
        _lines(panel, result, name, [point for point in others if point.name == name], colours)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
    pyplot.close(figure)


def _colours(result: Result) -> dict[str, str]:
    # A candidate and its row by row form share a colour.
    names = list(dict.fromkeys(e.name.removesuffix(ROW_BY_ROW) for e in result.entries if e.group != OURS))
    by_name = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    return {e.name: by_name.get(e.name.removesuffix(ROW_BY_ROW), OUR_COLOUR) for e in result.entries}


def _bars(panel: Any, result: Result, point: Timed, colours: dict[str, str]) -> None:
    names = sorted((e.name for e in result.right(point)), key=point.median, reverse=True)
    base = result.base(point)
    bars = panel.barh(names, [point.median(name) for name in names], color=[colours[name] for name in names])
    panel.bar_label(bars, [f"{point.median(n):.0f} ms, {point.ratio(n, base)[0]:.2f}" for n in names], padding=3)
    wrong = f"; wrong or failed: {', '.join(point.faults)}" if point.faults else ""
    panel.set_title(f"{result.what}: {point}{wrong}", loc="left", fontsize=9)
    panel.set_xlabel(f"ms, and times {base}")
    panel.margins(x=0.2)
    panel.spines[["top", "right"]].set_visible(False)


def _lines(panel: Any, result: Result, name: str, points: list[Timed], colours: dict[str, str]) -> None:
    for entry in result.entries:
        shown = [p for p in points if entry.name in p.seconds and entry.name not in p.faults]
        if shown:
            style = "--" if entry.name.endswith(ROW_BY_ROW) else "-"
            panel.plot(
                [AXES[name](p) for p in shown],
                [p.median(entry.name) for p in shown],
                style,
                marker="o",
                markersize=3,
                color=colours[entry.name],
                label=entry.name,
                linewidth=2.2 if entry.group == OURS else 1.1,
            )
    panel.set_yscale("log")
    if name != "fill":
        panel.set_xscale("log", base=2)
    # Plain numbers where something was measured, no powers.
    panel.set_xticks([AXES[name](p) for p in points], [f"{AXES[name](p):.0f}" for p in points])
    panel.minorticks_off()
    panel.yaxis.set_major_formatter("{x:g}")
    panel.set_xlabel(f"{HEADINGS[name]}{', %' if name == 'fill' else ''}")
    panel.set_ylabel("ms")
    panel.grid(alpha=0.25, which="both")
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
