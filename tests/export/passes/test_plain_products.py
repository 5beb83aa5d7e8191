"""PlainProductsPass: Gemm with a bias is a product and a sum, on the lengths that it had before it was reshaped."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.export.passes import PlainProductsPass

from .graphs import drawn, fused, model_of, untouched

INT = np.int64
CONSTANTS = {
    "w": drawn(6, 4, seed=1),
    "t": drawn(4, 6, seed=2),
    "b": drawn(4, seed=3),
    "flat": np.array([-1, 6], INT),
    "three": np.array([3], INT),
    "four": np.array([4], INT),
}
GEMM = {
    "plain": ("y = Gemm(x, w, b)", ["MatMul", "Add"]),
    "transposed": ("y = Gemm<transB = 1>(x, t, b)", ["MatMul", "Add"]),
}


@pytest.mark.parametrize(("body", "expected"), GEMM.values(), ids=GEMM)
def test_a_bias_is_a_sum(body: str, expected: list[str]) -> None:
    model = model_of(f"(float[T, 6] x) => (float[T, 4] y) {{ {body} }}", **CONSTANTS)
    assert fused(PlainProductsPass(), model, {"x": drawn(5, 6)}) == expected


RESHAPED = "r = Reshape(x, flat)\n g = Gemm(r, w{bias})\n s = Shape<end = 2>(x)\n n = Concat<axis = 0>(s, {width})\n"


@pytest.mark.parametrize(("bias", "expected"), [(", b", ["MatMul", "Add"]), ("", ["MatMul"])])
def test_lengths_around_it_stay_as_they_are(bias: str, expected: list[str]) -> None:
    body = RESHAPED.format(bias=bias, width="four") + "y = Reshape(g, n)"
    model = model_of(f"(float[B, S, 6] x) => (float[B, S, 4] y) {{ {body} }}", **CONSTANTS)
    assert fused(PlainProductsPass(), model, {"x": drawn(2, 3, 6)}) == expected


NEAR = {
    "no bias": "y = Gemm(x, w)",
    "a factor": "y = Gemm<alpha = 2.0>(x, w, b)",
    "a factor of the bias": "y = Gemm<beta = 2.0>(x, w, b)",
    "a bias for each row": "y = Gemm(x, w, c)",
    "weights that are given": "y = Gemm(x, g, b)",
}


@pytest.mark.parametrize("body", NEAR.values(), ids=NEAR)
def test_what_is_more_than_a_product_and_a_sum_is_left(body: str) -> None:
    text = f"(float[T, 6] x, float[6, 4] g, float[T, 4] c) => (float[T, 4] y) {{ {body} }}"
    untouched(PlainProductsPass(), model_of(text, **CONSTANTS))


def test_other_lengths_after_it_are_made_as_before() -> None:
    body = "r = Reshape(x, flat)\n g = Gemm(r, w)\n y = Reshape(g, other)"
    text = f"(float[B, S, 6] x) => (float[S, B, 4] y) {{ {body} }}"
    untouched(PlainProductsPass(), model_of(text, **CONSTANTS, other=np.array([3, 2, 4], INT)))
