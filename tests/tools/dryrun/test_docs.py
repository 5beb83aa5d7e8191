"""The page on the dry run prints what it says, and its table is the tested one."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from ...test_docs import BLOCK
from .test_forms import TABLE


def test_the_page_prints_what_it_says(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    text = (root / "docs/dryrun.md").read_text()
    blocks = [block for block in BLOCK.findall(text) if block[0] in ("python", "text")]
    assert [kind for kind, _ in blocks] == ["python", "text", "python"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for _, source in blocks[::2]:
            exec(compile(source, "dryrun.md", "exec"), {"__name__": "page"})
    assert printed.getvalue() == blocks[1][1]


def test_the_table_of_the_page_is_the_tested_one(root: Path) -> None:
    text = (root / "docs/dryrun.md").read_text()
    rows = re.findall(r"^\| ((?:Attention|MHA|GQA|PackedMHA).*) \|$", text, re.MULTILINE)
    assert rows == [" | ".join([name, *row.split(", ")]) for name, row in TABLE.items()]
