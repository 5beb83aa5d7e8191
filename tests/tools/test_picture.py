"""Pictures of masks and of what two masks differ in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from maskport.models import (
    Adjacency,
    Causal,
    Chunked,
    Dense,
    Full,
    K,
    KeyPadding,
    Mask,
    Prefix,
    Q,
    Row,
    Segments,
    Window,
)
from maskport.tools.mask_sample import fill, ordinal, sample
from maskport.tools.picture import ADDED, ATTENDS, DEPENDS, MARKS, NOT, REMOVED, difference, legend, picture, text

from ..models.mask_strategies import cases, masks


def rows(mask: Mask, panel: int = 0) -> list[str]:
    return ["".join(MARKS[cell][0] for cell in line) for line in picture(mask).cells[panel]]


def test_a_picture_is_the_mask_at_its_sample() -> None:
    mask = Causal() & KeyPadding("m", 1)
    drawn = picture(mask)
    at = sample(mask)
    assert at.tensors["m"].tolist() == [[2, 2, 2, 2, 2, 2, 1, 1], [1, 1, 2, 2, 2, 2, 2, 2]]
    np.testing.assert_array_equal(drawn.cells == ATTENDS, mask.dense(8, 8, m=at.tensors["m"])[:, 0])
    assert drawn.caption == "m pads 2 on the right (b=0) or left (b=1)"
    assert str(text(drawn)).splitlines()[:4] == [
        "b=0                 b=1              ",
        "  0 1 2 3 4 5 6 7     0 1 2 3 4 5 6 7",
        "0 ■ · · · · · · ·   0 · · · · · · · ·",
        "1 ■ ■ · · · · · ·   1 · · · · · · · ·",
    ]
    assert str(legend(drawn)) == "· does not attend  ■ attends"


@pytest.mark.parametrize(
    ("mask", "first", "last"),
    [
        (Window(2, 2), "■■■·····", "·····■■■"),
        (Window(7, 0), "■··········", "···■■■■■■■■"),
        (Chunked(4) & Causal(), "■·······", "····■■■■"),
        (Window(4095, 0), "■·······", "····■■■■"),
        (Chunked(8192), "■■■■····", "····■■■■"),
        (Causal(K - Q), "■■■·····", "■■■■■■■■"),
        (Full(), "■■■■■■■■", "■■■■■■■■"),
        (~Full(), "········", "········"),
        (Prefix("n") + 1, "■■■■■■··", "■■■■■■··"),
        (Causal(Row("n") - Q), "········", "■■■■■···"),
        (Segments("s"), "■■■·····", "······■■"),
        (Segments("s", "t"), "■■■·····", "······■■"),
        (Segments("s") & KeyPadding("s"), "■■■·····", "········"),
    ],
)
def test_what_a_mask_says_can_be_seen(mask: Mask, first: str, last: str) -> None:
    drawn = rows(mask)
    assert (drawn[0], drawn[-1]) == (first, last)


def test_tensors_of_each_pair_are_left_open() -> None:
    drawn = picture(Causal() & Dense("d") | Chunked(4) & Adjacency("g") | Window(0, 0))
    assert {int(cell) for cell in np.diagonal(drawn.cells[0])} == {ATTENDS}
    assert drawn.cells[0, 0].tolist() == [ATTENDS, *[DEPENDS] * 3, *[NOT] * 4]
    assert "?" in str(legend(drawn))
    many = Full()
    for number in range(9):
        many = many & Dense(f"d{number}")
    assert (picture(many).cells == DEPENDS).all()


def test_large_windows_are_drawn_in_steps_on_small_tensors() -> None:
    others = Adjacency("g") & KeyPadding("m") & Dense("d")
    drawn = picture(Window(2**20 - 1, 0) & others)
    assert drawn.caption == f"every 262144th position of {2**21}; m pads {2**19} on the right (b=0) or left (b=1)"
    assert drawn.cells[0, -1].tolist() == [NOT] * 4 + [DEPENDS] * 2 + [NOT] * 2
    drawn = picture(Window(2**60, 0) & others)
    assert drawn.caption.startswith("bounds beyond 1048576 are not drawn; m pads 2 on")


@settings(max_examples=50, deadline=None)
@given(masks())
def test_every_mask_can_be_drawn(mask: Mask) -> None:
    at = sample(mask)
    drawn = picture(mask)
    assert drawn.cells.shape[1:] == (len(at.q), len(at.k))
    zeros, ones = (
        mask.at(at.q, at.k, at.q_len, at.k_len, 0, **fill(at, [mask], dict.fromkeys(at.free, np.array(bit)))[0])
        for bit in (False, True)
    )
    for attends in (zeros, ones):
        np.testing.assert_array_equal(attends[:, 0][drawn.cells == ATTENDS], True)
        np.testing.assert_array_equal(attends[:, 0][drawn.cells == NOT], False)


@settings(max_examples=50, deadline=None)
@given(cases(count=2))
def test_every_difference_shows(drawn: list) -> None:
    (old, _), (new, _) = drawn
    try:
        witness = old.witness(new)
    except ValueError:
        return  # one name is two tensors
    if witness is not None:
        cells = difference(old, new, witness).cells
        assert np.isin(cells, (ADDED, REMOVED)).any()


def test_a_difference_is_drawn_at_sample_lengths_or_around_its_witness() -> None:
    old, new = Causal(), Window(5, 0)
    near = difference(old, new, old.witness(new, self_attention=True))
    assert near.cells[0, 6].tolist() == [REMOVED, *[ATTENDS] * 6, NOT, NOT]
    assert "-" in str(legend(near))
    old, new = Window(4000, 0) & KeyPadding("m"), Window(4050, 0) & KeyPadding("m")
    far = difference(old, new, old.witness(new, self_attention=True))
    assert far.caption == "around the first difference"
    assert far.q.tolist() == [*range(3997, 4005)]
    assert [line.tolist().count(ADDED) for line in far.cells[0]] == [0, 0, 0, 0, 1, 2, 3, 4]
    renamed = difference(KeyPadding("a"), KeyPadding("b"), KeyPadding("a").witness(KeyPadding("b")))
    assert (renamed.cells == REMOVED).any()


def test_ordinals() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 112, 1024)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th", "1024th",
    ]  # fmt: skip
