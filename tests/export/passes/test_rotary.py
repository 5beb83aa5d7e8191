"""RotaryPass: rotary embedding in steps is one operator, for tokens and for places; what only looks like it stays."""

from __future__ import annotations

import re

import numpy as np
import pytest
from maskport.export.passes import RotaryPass

from .graphs import drawn, fused, model_of, untouched

INT = np.int64
CONSTANTS = {
    "f": drawn(4, seed=1),
    "zero": np.array([0], INT),
    "half": np.array([4], INT),
    "far": np.array([2**63 - 1], INT),
    "last": np.array([-1], INT),
    "one": np.array([1], INT),
    "quarter": np.array([2], INT),
    "split": np.array([0, 3, 8], INT),
    "joined": np.array([-1, 24], INT),
    "heads": np.array([0, 0, 3, 8], INT),
    "beside": np.array([0, 0, 24], INT),
}
ROTATED = (
    "lo = Slice(x, zero, half, last, one)\n hi = Slice(x, half, far, last, one)\n ne = Neg(hi)\n"
    "ro = Concat<axis = -1>(ne, lo)\n u = Mul(x, c)\n v = Mul(ro, s)\n y = Add(u, v)\n"
)
TABLES = "e = Concat<axis = -1>(g, g)\n c = Cos(e)\n s = Sin(e)\n"
TOKENS = "g = Mul(p, f)\n" + TABLES + ROTATED
BY_TOKEN = "(float[T, 3, 8] x, float[T, 1, 1] p) => (float[T, 3, 8] y)"
PLACES = "g = Mul(p, f)\n" + TABLES + ROTATED


def test_tokens_are_turned_by_one_operator() -> None:
    model = model_of(f"{BY_TOKEN} {{ {TOKENS} }}", **CONSTANTS)
    left = fused(RotaryPass(), model, {"x": drawn(5, 3, 8), "p": drawn(5, 1, 1, seed=2)})
    assert left.count("RotaryEmbedding") == 1
    assert not {"Neg", "Add"} & set(left)


@pytest.mark.parametrize("batch", ["B", "1"])
def test_places_are_turned_by_one_operator_with_tables_for_each_row(batch: str) -> None:
    text = f"(float[B, 3, S, 8] x, float[{batch}, 1, S, 1] p) => (float[B, 3, S, 8] y) {{ {PLACES} }}"
    feeds = {"x": drawn(2, 3, 5, 8), "p": drawn(2 if batch == "B" else 1, 1, 5, 1, seed=2)}
    left = fused(RotaryPass(), model_of(text, **CONSTANTS), feeds)
    assert left.count("RotaryEmbedding") == 1
    assert ("Expand" in left) == (batch == "1")


def turned(n: int) -> str:
    """Return one of several rotations of heads side by side."""
    body = ROTATED
    for name in ("lo", "hi", "ne", "ro", "u", "v", "x", "y"):
        body = re.sub(rf"\b{name}\b", f"{name}{n}", body)
    before = f"h{n} = Reshape(in{n}, heads)\n x{n} = Transpose<perm = [0, 2, 1, 3]>(h{n})\n"
    return before + body + f"t{n} = Transpose<perm = [0, 2, 1, 3]>(y{n})\n out{n} = Reshape(t{n}, beside)\n"


def test_heads_stay_side_by_side_and_tables_are_shared() -> None:
    inputs = "(float[B, S, 24] in1, float[B, S, 24] in2, float[1, 1, S, 1] p)"
    outputs = "(float[B, S, 24] out1, float[B, S, 24] out2)"
    text = f"{inputs} => {outputs} {{ g = Mul(p, f)\n {TABLES} {turned(1)} {turned(2)} }}"
    feeds = {"in1": drawn(2, 5, 24), "in2": drawn(2, 5, 24, seed=4), "p": drawn(1, 1, 5, 1, seed=2)}
    left = fused(RotaryPass(), model_of(text, **CONSTANTS), feeds)
    assert (left.count("RotaryEmbedding"), left.count("Expand"), left.count("Transpose")) == (2, 2, 0)


def test_tokens_that_are_put_in_rows_are_turned_there() -> None:
    body = "x = Reshape(flat, split)\n" + TOKENS + "j = Reshape(y, joined)\n z = Gather<axis = 0>(j, i)"
    text = f"(float[T, 24] flat, float[T, 1, 1] p, int64[B, L] i) => (float[B, L, 24] z) {{ {body} }}"
    index = np.array([[0, 1, 1], [2, 3, 4]], INT)
    feeds = {"flat": drawn(5, 24), "p": drawn(5, 1, 1, seed=2), "i": index}
    left = fused(RotaryPass(), model_of(text, **CONSTANTS), feeds)
    assert left[-1] == "RotaryEmbedding"
    # Queries, and both tables.
    assert left.count("Gather") == 3


NEAR = {
    "halves that differ": TOKENS.replace("e = Concat<axis = -1>(g, g)", "k = Exp(g)\n e = Concat<axis = -1>(g, k)"),
    "no minus": TOKENS.replace("Neg", "Abs"),
    "the minus on the other half": TOKENS.replace("Neg(hi)", "Neg(lo)").replace("(ne, lo)", "(hi, ne)"),
    "halves that are not exchanged": TOKENS.replace("(ne, lo)", "(lo, ne)"),
    "a quarter": TOKENS.replace("Slice(x, zero, half", "Slice(x, quarter, half"),
    "every second": TOKENS.replace("Slice(x, half, far, last, one)", "Slice(x, half, far, last, quarter)"),
    "another value is scaled": TOKENS.replace("Mul(x, c)", "Mul(w, c)").replace("ro =", "w = Exp(x)\n ro ="),
    "a difference": TOKENS.replace("y = Add(u, v)", "y = Sub(u, v)"),
    "steps that are used": TOKENS + "z = Exp(v)",
}


@pytest.mark.parametrize("body", NEAR.values(), ids=NEAR)
def test_what_is_no_rotation_is_left(body: str) -> None:
    outputs = "(float[T, 3, 8] y, float[T, 3, 8] z)" if "z =" in body else "(float[T, 3, 8] y)"
    untouched(RotaryPass(), model_of(f"(float[T, 3, 8] x, float[T, 1, 1] p) => {outputs} {{ {body} }}", **CONSTANTS))


def test_tables_for_each_head_are_left() -> None:
    text = f"(float[T, 3, 8] x, float[T, 3, 1] p) => (float[T, 3, 8] y) {{ {TOKENS} }}"
    untouched(RotaryPass(), model_of(text, **CONSTANTS))


def test_an_older_operator_set_is_left() -> None:
    untouched(RotaryPass(), model_of(f"{BY_TOKEN} {{ {TOKENS} }}", opset=20, **CONSTANTS))
