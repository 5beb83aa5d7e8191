"""WideHeadsPass: elements that are added to heads are columns of the weights before; what has none stays."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.export.passes import WideHeadsPass

from .graphs import drawn, fused, model_of, untouched

INT = np.int64
CONSTANTS = {
    "w": drawn(6, 8, seed=1),
    "b": drawn(8, seed=2),
    "row": np.array([[[[3.0, 0.0]]]], np.float32),
    "zeros": np.zeros((1, 1, 1, 2), np.float32),
    "heads": np.array([0, 0, 2, 4], INT),
    "whole": np.array([0, 0, 12], INT),
    "two": np.array([2, 2], INT),
}
PROJECTED = {"plain": "p = MatMul(x, w)", "with a bias": "n = MatMul(x, w)\n p = Add(n, b)"}
JOINED = "h = Reshape(p, heads)\n j = Concat<axis = -1>(h, more)\n y = Reshape(j, whole)"
LENGTHS = "l = Shape<start = 0, end = 2>(x)\n k = Concat<axis = 0>(l, two)\n"
MORE = {
    "the same everywhere": LENGTHS + "more = Expand(row, k)\n",
    "for each place": "more = Expand(given, k)\n",
}
SIGNATURE = "(float[B, S, 6] x, float[B, S, 1, 2] given) => (float[B, S, 12] y)"
FEEDS = {"x": drawn(2, 3, 6), "given": drawn(2, 3, 1, 2, seed=5)}


@pytest.mark.parametrize("projected", PROJECTED.values(), ids=PROJECTED)
def test_elements_that_are_the_same_are_in_the_bias(projected: str) -> None:
    model = model_of(f"{SIGNATURE} {{ {projected}\n {MORE['the same everywhere']} {JOINED} }}", **CONSTANTS)
    assert fused(WideHeadsPass(), model, FEEDS) == ["MatMul", "Add"]


@pytest.mark.parametrize("projected", PROJECTED.values(), ids=PROJECTED)
def test_other_elements_are_added(projected: str) -> None:
    body = f"{projected}\n {LENGTHS} {MORE['for each place']} {JOINED}"
    left = fused(WideHeadsPass(), model_of(f"{SIGNATURE} {{ {body} }}", **CONSTANTS), FEEDS)
    assert "Concat" not in left[left.index("MatMul") :]
    assert left.count("MatMul") == 1


def test_a_length_that_is_asked_of_the_projection_stays_and_no_circle_is_made() -> None:
    body = PROJECTED["plain"] + "\n" + LENGTHS.replace("(x)", "(p)") + MORE["for each place"] + JOINED
    left = fused(WideHeadsPass(), model_of(f"{SIGNATURE} {{ {body} }}", **CONSTANTS), FEEDS)
    assert left.count("MatMul") == 1


def test_parts_of_a_projection_are_widened_one_by_one() -> None:
    body = (
        "n = MatMul(x, w)\n t = Add(n, b)\n p, q = Split<axis = -1>(t, parts)\n "
        + LENGTHS.replace("two", "once")
        + "more = Expand(row, k)\n h = Reshape(p, heads)\n j = Concat<axis = -1>(h, more)\n y = Reshape(j, side)\n"
        "z = Exp(q)"
    )
    changed = {"parts": np.array([4, 4], INT), "once": np.array([1, 2], INT), "heads": np.array([0, 0, 1, 4], INT)}
    changed["side"] = np.array([0, 0, 6], INT)
    text = f"(float[B, S, 6] x) => (float[B, S, 6] y, float[B, S, 4] z) {{ {body} }}"
    left = fused(WideHeadsPass(), model_of(text, **{**CONSTANTS, **changed}), {"x": FEEDS["x"]})
    assert left.count("MatMul") == 2
    assert not {"Split", "Concat"} & set(left)


ATTENDED = (
    "h = Reshape(p, heads)\n j = Concat<axis = -1>(h, more)\n v = Reshape(j, whole)\n"
    "a = Attention<q_num_heads = 2, kv_num_heads = 2>(v, v, v)\n g = Reshape(a, wide)\n"
    "c = Slice(g, from, to, last)\n f = Reshape(c, narrow)\n y = MatMul(f, o)"
)
AFTER = {
    "wide": np.array([0, 0, 2, 6], INT),
    "from": np.array([0], INT),
    "to": np.array([4], INT),
    "last": np.array([3], INT),
    "narrow": np.array([0, 0, 8], INT),
    "o": drawn(8, 5, seed=7),
}


def test_what_is_cut_off_after_an_attention_meets_rows_of_zeros() -> None:
    body = f"p = MatMul(x, w)\n {LENGTHS} more = Expand(zeros, k)\n {ATTENDED}"
    model = model_of(f"(float[B, S, 6] x) => (float[B, S, 5] y) {{ {body} }}", **CONSTANTS, **AFTER)
    assert fused(WideHeadsPass(), model, {"x": FEEDS["x"]}) == ["MatMul", "Attention", "MatMul"]


def test_elements_that_are_no_zeros_are_cut_off_as_before() -> None:
    body = f"p = MatMul(x, w)\n {LENGTHS} more = Expand(row, k)\n {ATTENDED}"
    model = model_of(f"(float[B, S, 6] x) => (float[B, S, 5] y) {{ {body} }}", **CONSTANTS, **AFTER)
    assert "Slice" in fused(WideHeadsPass(), model, {"x": FEEDS["x"]})


WIDENED = f"{PROJECTED['plain']}\n {MORE['the same everywhere']} {JOINED}"
NEAR = {
    "no weights": WIDENED.replace("MatMul(x, w)", "Mul(x8, x8)"),
    "a projection that is used": WIDENED + "\n z = Exp(p)",
    "heads that are used": WIDENED + "\n z = Exp(h)",
    "elements in front": WIDENED.replace("(h, more)", "(more, h)"),
}


@pytest.mark.parametrize("body", NEAR.values(), ids=NEAR)
def test_what_is_no_widened_projection_is_left(body: str) -> None:
    shape = {"Exp(p)": "float[B, S, 8] z", "Exp(h)": "float[B, S, 2, 4] z"}.get(body[-6:])
    outputs = "float[B, S, 12] y" if shape is None else f"float[B, S, 12] y, {shape}"
    model = model_of(f"(float[B, S, 6] x, float[B, S, 8] x8) => ({outputs}) {{ {body} }}", **CONSTANTS)
    untouched(WideHeadsPass(), model)
