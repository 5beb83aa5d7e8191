"""Parts of the docs that a command writes, between two marks of the page."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_between"]


def write_between(page: Path, begin: str, end: str, text: str) -> None:
    """Put a text, in a paragraph of its own, in the place of what stands between two marks."""
    written = page.read_text(encoding="utf-8")
    start, stop = written.index(begin) + len(begin), written.index(end)
    page.write_text(f"{written[:start]}\n{text}\n\n{written[stop:]}", encoding="utf-8")
