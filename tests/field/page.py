"""The page of faults, from a run of each: ``python -m tests.field.page`` in the repository's folder."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from ..generated import write_between
from .faults import FAULTS, TITLES, Said

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
BEGIN, END = "<!-- made by python -m tests.field.page -->\n", "<!-- end -->\n"
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def said(fault: Said) -> str:
    """Return what is said of a fault that is made anew."""
    with tempfile.TemporaryDirectory() as folder:
        return fault.says(Path(folder))


def entry(fault: Said, text: str) -> str:
    """Return a fault as the page has it."""
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return f"`{fault.how}`:\n\n```text\n{lines}\n```\n"


def words(text: str) -> str:
    """Return a text without its numbers and its line breaks: another machine rounds and wraps otherwise."""
    return " ".join(NUMBER.sub("0", text).split())


def main() -> None:
    """Make each fault, and write what is said of it into the page."""
    parts = []
    for number, title in TITLES.items():
        parts.append(f"## {number}. {title}\n")
        before = ""
        for fault in FAULTS:
            if fault.number == number:
                if fault.model != before:
                    parts.append(f"**{fault.model}.**\n")
                before = fault.model
                parts.append(entry(fault, said(fault)))
    write_between(PAGE, BEGIN, END, "\n".join(parts).rstrip())


if __name__ == "__main__":
    main()
