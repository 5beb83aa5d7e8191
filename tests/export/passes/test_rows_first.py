"""RowsFirstPass: parts that are put in rows alike are put there before they are parts."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.export.passes import RowsFirstPass

from .graphs import drawn, fused, model_of, untouched

SIZES = np.array([4, 2, 2], np.int64)
INPUTS = "(float[T, 8] x, int64[B, L] i, int64[B, L] j)"
OUTPUTS = "(float[B, L, 4] a, float[B, L, 2] b, float[B, L, 2] c)"
BODY = (
    "p, q, r = Split<axis = 1>(x, sizes)\n a = Gather<axis = 0>(p, i)\n b = Gather<axis = 0>(q, i)\n"
    "c = Gather<axis = 0>(r, i)"
)


def test_one_pick_before_the_split() -> None:
    feeds = {
        "x": drawn(5, 8),
        "i": np.array([[0, 1, 1], [4, 3, 2]], np.int64),
        "j": np.zeros((2, 3), np.int64),
    }
    model = model_of(f"{INPUTS} => {OUTPUTS} {{ {BODY} }}", sizes=SIZES)
    assert fused(RowsFirstPass(), model, feeds) == ["Gather", "Split"]


NEAR = {
    "other indices": BODY.replace("(r, i)", "(r, j)"),
    "a part that is used": BODY + "\n z = Exp(q)",
}


@pytest.mark.parametrize("body", NEAR.values(), ids=NEAR)
def test_parts_that_are_not_picked_alike_are_left(body: str) -> None:
    outputs = OUTPUTS.replace(")", ", float[T, 2] z)") if "z =" in body else OUTPUTS
    untouched(RowsFirstPass(), model_of(f"{INPUTS} => {outputs} {{ {body} }}", sizes=SIZES))


def test_columns_that_are_picked_are_left() -> None:
    body = "p, q = Split<axis = 1, num_outputs = 2>(x)\n a = Gather<axis = 1>(p, i)\n b = Gather<axis = 1>(q, i)"
    text = f"(float[T, 8] x, int64[N] i) => (float[T, N] a, float[T, N] b) {{ {body} }}"
    untouched(RowsFirstPass(), model_of(text))
