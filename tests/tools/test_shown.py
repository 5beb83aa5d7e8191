"""Names as people can read them."""

from __future__ import annotations

import pytest
from maskport.tools.shown import joined, plural, ranges, shown


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("layers.0.self_attn", "layers.0.self_attn"),
        ("a\nb\x1b[31m\x00", "a\\nb\\x1b[31m\\x00"),
        ("\u202eabc\ud800", "\\u202eabc\\ud800"),
        ("אבג 😀 é", "אבג 😀 é"),
        ("", ""),
    ],
)
def test_what_cannot_be_printed_is_escaped(name: str, text: str) -> None:
    assert shown(name) == text


@pytest.mark.parametrize("length", [60, 61, 120, 121, 10**7])
def test_a_long_name_loses_its_middle(length: int) -> None:
    text = shown("a" * (length - 1) + "z")
    assert len(text) <= 60
    assert text.startswith("aaaa")
    assert text.endswith("z")
    assert ("…" in text) is (length > 60)
    assert len(shown("\x00" * length)) == 60


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([3], "3"),
        ([0, 1, 2], "0-2"),
        ([2, 0, 1, 5], "0-2,5"),
        ([0, 2, 4, 6, 8, 10], "0,2,4,6,8,10"),
        ([*range(0, 40, 2)], "0,2,4,…,38"),
    ],
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_names_that_differ_in_one_number_are_joined() -> None:
    names = ["a.0.x", "b.0.x", "a.1.x", "a.1.y", "plain", "c.0.0", "c.0.1", "c.1.0"]
    assert joined(names) == [
        ("a.0-1.x", [0, 2]),
        ("b.0.x", [1]),
        ("a.1.y", [3]),
        ("plain", [4]),
        ("c.0-1.0", [5, 7]),
        ("c.0.1", [6]),
    ]


def test_plural() -> None:
    assert [plural(n, "site") for n in (0, 1, 2)] == ["0 sites", "1 site", "2 sites"]
