"""SkipNormPass: what is added before a norm is a part of it, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.export.passes import SkipNormPass

from .graphs import drawn, fused, model_of, untouched

CONSTANTS = {"w": drawn(8, seed=1), "b": drawn(8, seed=2), "c": drawn(8, seed=3)}
LAYER = "y = LayerNormalization<axis = -1, epsilon = 0.001>(t, w, b)"
RMS = "y = RMSNormalization<axis = -1, epsilon = 0.001>(t, w)"
SUMS = {
    "a sum": "t = Add(x, s)",
    "a bias of one": "u = Add(x, c)\n t = Add(u, s)",
    "a bias of the other, first": "u = Add(c, s)\n t = Add(x, u)",
    "a bias of the sum": "u = Add(x, s)\n t = Add(u, c)",
}
SHAPES = {"tokens": ("T, 8", (5, 8)), "places": ("B, S, 8", (2, 3, 8))}


@pytest.mark.parametrize("norm", [LAYER, RMS], ids=["layer", "rms"])
@pytest.mark.parametrize(("named", "shape"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("summed", SUMS.values(), ids=SUMS)
def test_a_sum_and_its_bias_become_a_part_of_the_norm(
    summed: str, named: str, shape: tuple[int, ...], norm: str
) -> None:
    text = f"(float[{named}] x, float[{named}] s) => (float[{named}] y) {{ {summed}\n {norm} }}"
    left = fused(SkipNormPass(), model_of(text, **CONSTANTS), {"x": drawn(*shape), "s": drawn(*shape, seed=9)})
    assert left == ["SkipLayerNormalization" if norm is LAYER else "SkipSimplifiedLayerNormalization"]


@pytest.mark.parametrize("norm", [LAYER, RMS], ids=["layer", "rms"])
def test_a_sum_that_is_used_elsewhere_is_a_second_result(norm: str) -> None:
    text = f"(float[T,8] x, float[T,8] s) => (float[T,8] y, float[T,8] z) {{ t = Add(x, s)\n {norm}\n z = Exp(t) }}"
    left = fused(SkipNormPass(), model_of(text, **CONSTANTS), {"x": drawn(5, 8), "s": drawn(5, 8, seed=9)})
    assert left[0].startswith("Skip")
    assert left[1:] == ["Exp"]


def test_a_sum_that_is_an_output_keeps_its_name() -> None:
    text = f"(float[T,8] x, float[T,8] s) => (float[T,8] y, float[T,8] t) {{ t = Add(x, s)\n {LAYER} }}"
    left = fused(SkipNormPass(), model_of(text, **CONSTANTS), {"x": drawn(5, 8), "s": drawn(5, 8, seed=9)})
    assert left == ["SkipLayerNormalization"]


def test_half_precision_and_metadata_stay() -> None:
    half = {name: array.astype(np.float16) for name, array in CONSTANTS.items()}
    text = f"(float16[T,8] x, float16[T,8] s) => (float16[T,8] y) {{ t = Add(x, s)\n {LAYER} }}"
    model = model_of(text, **half)
    model.graph[-1].metadata_props["origin"] = "norm"
    feeds = {"x": drawn(5, 8, dtype=np.float16), "s": drawn(5, 8, dtype=np.float16, seed=9)}
    assert fused(SkipNormPass(), model, feeds, atol=4e-3) == ["SkipLayerNormalization"]
    assert model.graph[0].metadata_props["origin"] == "norm"


NEAR = {
    "lengths of two names": f"(float[T,8] x, float[U,8] s) => (float[V,8] y) {{ t = Add(x, s)\n {LAYER} }}",
    "a row that is added to all": f"(float[T,8] x, float[1,8] s) => (float[T,8] y) {{ t = Add(x, s)\n {LAYER} }}",
    "four axes": f"(float[A,B,C,8] x, float[A,B,C,8] s) => (float[A,B,C,8] y) {{ t = Add(x, s)\n {LAYER} }}",
    "another axis": "(float[8,8] x, float[8,8] s) => (float[8,8] y) "
    "{ t = Add(x, s)\n y = LayerNormalization<axis = 0>(t, q) }",
    "no sum": f"(float[T,8] x, float[T,8] s) => (float[T,8] y) {{ t = Mul(x, s)\n {LAYER} }}",
    "a bias alone": f"(float[T,8] x) => (float[T,8] y) {{ t = Add(x, c)\n {LAYER} }}",
    "its mean is used": "(float[T,8] x, float[T,8] s) => (float[T,8] y, float[T,1] m) "
    "{ t = Add(x, s)\n y, m = LayerNormalization<axis = -1>(t, w, b) }",
}


@pytest.mark.parametrize("text", NEAR.values(), ids=NEAR)
def test_what_is_not_alike_is_left(text: str) -> None:
    untouched(SkipNormPass(), model_of(text, **CONSTANTS, q=drawn(8, 8, seed=4)))


def test_a_bias_that_is_used_elsewhere_is_not_taken() -> None:
    body = f"u = Add(x, c)\n t = Add(u, s)\n {LAYER}\n z = Exp(u)"
    model = model_of(f"(float[T,8] x, float[T,8] s) => (float[T,8] y, float[T,8] z) {{ {body} }}", **CONSTANTS)
    left = fused(SkipNormPass(), model, {"x": drawn(5, 8), "s": drawn(5, 8, seed=9)})
    assert sorted(left) == ["Add", "Exp", "SkipLayerNormalization"]
