"""The page says what the rules say."""

from __future__ import annotations

from .page import PAGE, made


def test_the_tables_of_the_page_are_the_rules() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert made(page) == page
