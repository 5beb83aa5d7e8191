"""``maskport inspect``: from a file to a report, a page and an exit code."""

from __future__ import annotations

from pathlib import Path

from .files import check_output
from .reading import read_attention
from .screen import Screen


def inspect_command(screen: Screen, model: Path, page: Path | None, check: bool, as_json: bool) -> int:
    """Inspect a model and show what was found.

    Returns
    -------
    int
        1 if an attention was not understood, or its mask disagrees with its graph; else 0.

    Raises
    ------
    MaskportError
        If the file can't be read or the page can't be written.
    """
    if page is not None:
        check_output(page)
    with screen.progress(f"Inspect {model.name}"):
        report = read_attention(model, check=check)
    if page is not None:
        from .inspect_page import write_page

        write_page(report, page)
    if as_json:
        screen.json(report.to_json())
    else:
        from .inspect_table import print_report

        print_report(screen, report)
    return int(any(unlifted.attention for unlifted in report.unlifted))
