"""Batches of a point have the fill and the length that it says; the text is prose."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.export.cases.layout import Layout
from maskport.tools.benchmark.batches import PATTERNS, checked_batches, point_batches, real_tokens
from maskport.tools.benchmark.points import Point
from maskport.tools.benchmark.texts import SHORTEST, paragraphs

from .test_rows import IO

LAYOUT = Layout.from_io(IO)
EXAMPLES = {"x": np.ones((2, 5, 3), np.float32), "attention_mask": np.ones((2, 5), np.int64)}


@pytest.mark.parametrize("fill", [0.3, 0.5, 0.85, 1.0])
def test_a_batch_is_as_full_as_its_point_says(fill: float) -> None:
    point = Point("fill", 64, 100, fill, count=2)
    batches = point_batches(LAYOUT, EXAMPLES, point)

    assert len(batches) == 2
    for batch in batches:
        assert batch["x"].shape == (64, 100, 3)
        lengths = batch["attention_mask"].sum(axis=1)
        assert lengths.max() == 100
        assert lengths.min() >= 1
        assert (np.diff(batch["attention_mask"]) <= 0).all()  # padding on the right
        real, tokens = real_tokens(LAYOUT, batch)
        assert real / tokens == pytest.approx(fill, abs=0.06)


def test_every_padding_is_checked_and_none_where_there_is_no_mask() -> None:
    assert list(checked_batches(LAYOUT, EXAMPLES)) == list(PATTERNS)
    layout = Layout({"x": LAYOUT.inputs["x"]}, LAYOUT.outputs, LAYOUT.batch, LAYOUT.tokens)
    assert list(checked_batches(layout, EXAMPLES)) == ["ones"]


def test_paragraphs_are_distinct_prose() -> None:
    found = paragraphs()
    assert len(found) == len(set(found)) > 100
    assert all(len(text) >= SHORTEST and "\n" not in text for text in found)
