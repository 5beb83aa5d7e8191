"""The code of docs/recipes.md runs, prints what the page says it prints, and the page states no other figure."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="session")
def page(root: Path) -> str:
    return (root / "docs/recipes.md").read_text()


def test_the_page_prints_what_it_says(page: str) -> None:
    pytest.importorskip("onnxruntime")
    namespace: dict[str, object] = {"__name__": "recipes"}
    blocks = BLOCK.findall(page)
    for index, (kind, source) in enumerate(blocks):
        if kind == "text":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, f"docs/recipes.md, block {index}", "exec"), namespace)
        follows = blocks[index + 1] if index + 1 < len(blocks) else ("python", "")
        assert printed.getvalue() == (follows[1] if follows[0] == "text" else "")


def test_figures_in_the_text_are_printed(page: str) -> None:
    printed = " ".join(source for kind, source in BLOCK.findall(page) if kind == "text")
    prose = BLOCK.sub("", page)
    figures = re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])|\d+ ?%", prose)
    assert figures
    assert [figure for figure in figures if figure not in printed] == []
