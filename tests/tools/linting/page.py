"""The page on the linter, its tables made from the rules: ``python -m tests.tools.linting.page``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from maskport.tools.linting.known import KNOWN
from maskport.tools.linting.rule import LEVELS
from maskport.tools.linting.rules import GROUPS, RULES

PAGE = Path(__file__).parents[3] / "docs" / "lint.md"
MARK = "<!-- made by python -m tests.tools.linting.page: {} -->\n"
END = "<!-- end -->"


def rules() -> Iterator[str]:
    yield "| level | means |\n|---|---|"
    yield from (f"| {level} | {what} |" for level, what in LEVELS.items())
    for start, group in GROUPS.items():
        yield f"\n### {start}xx: {group}"
        for rule in RULES.values():
            if rule.code.startswith(start):
                fixable = f", mended by `--repair {rule.fixable}`" if rule.fixable else ""
                yield f"\n**{rule.code} {rule.name}** ({rule.level}{fixable}). {rule.what} {rule.why} *{rule.do}*"


def known() -> Iterator[str]:
    yield "| package | seen in | what | found by |\n|---|---|---|---|"
    yield from (f"| {one.package} | {one.seen} | {one.what} | {one.rule or '–'} |" for one in KNOWN.values())


TABLES = {"rules": rules, "known": known}


def made(page: str) -> str:
    """Return a page with its tables made anew."""
    for name, table in TABLES.items():
        start = MARK.format(name)
        found = re.search(re.escape(start) + ".*?" + re.escape(END), page, re.DOTALL)
        assert found is not None, f"the page has no place for {name}"
        text = "\n".join(table())
        page = page[: found.start()] + f"{start}\n{text}\n\n{END}" + page[found.end() :]
    return page


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
