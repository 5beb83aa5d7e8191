"""The Python of the README and the docs runs, prints what the page says, and the page states no other figure."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["README.md", "docs/recipes.md", "docs/session.md"])
def test_the_page_prints_what_it_says(root: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "page"}
    blocks = [block for block in BLOCK.findall((root / name).read_text()) if block[0] in ("python", "text")]
    assert blocks
    for (kind, source), follows in zip(blocks, [*blocks[1:], ("python", "")], strict=True):
        if kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(source, name, "exec"), namespace)
            assert printed.getvalue() == (follows[1] if follows[0] == "text" else "")


def test_figures_of_the_recipes_are_printed(root: Path) -> None:
    page = (root / "docs/recipes.md").read_text()
    printed = " ".join(source for kind, source in BLOCK.findall(page) if kind == "text")
    figures = re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])|\d+ ?%", BLOCK.sub("", page))
    assert figures
    assert [figure for figure in figures if figure not in printed] == []
