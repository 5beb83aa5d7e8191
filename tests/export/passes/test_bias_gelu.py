"""BiasGeluPass: a bias before Gelu is a part of it, by the way in which Gelu is computed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from maskport.export.passes import BiasGeluPass

from .graphs import drawn, fused, model_of, untouched

CONSTANTS = {
    "c": drawn(8, seed=1),
    "half": np.float32(0.5),
    "one": np.float32(1),
    "three": np.float32(3),
    "k": np.float32(0.044715),
    "q": np.float32(math.sqrt(2 / math.pi)),
}
STEPS = (
    "h = Mul(half, t)\n p = Pow(t, three)\n a = Mul(p, k)\n b = Add(t, a)\n m = Mul(b, q)\n n = Tanh(m)\n"
    "o = Add(n, one)\n y = Mul(h, o)"
)
GELU = {
    "exact": ("y = Gelu(t)", "BiasGelu"),
    "by tanh": ('y = Gelu<approximate = "tanh">(t)', "FastGelu"),
    "by tanh, in steps": (STEPS, "FastGelu"),
    "ONNX Runtime's": ("y = com.microsoft.Gelu(t)", "BiasGelu"),
}


@pytest.mark.parametrize(("gelu", "operator"), GELU.values(), ids=GELU)
@pytest.mark.parametrize("bias", ["Add(x, c)", "Add(c, x)"])
@pytest.mark.parametrize("named", ["T", "B, S"])
def test_a_bias_is_a_part_of_gelu(gelu: str, operator: str, bias: str, named: str) -> None:
    x = drawn(*range(2, 2 + len(named.split(","))), 8)
    model = model_of(f"(float[{named}, 8] x) => (float[{named}, 8] y) {{ t = {bias}\n {gelu} }}", **CONSTANTS)
    assert fused(BiasGeluPass(), model, {"x": x}, atol=2e-5) == [operator]


def test_steps_without_a_bias_are_the_standard_operator() -> None:
    model = model_of(f"(float[T, 8] t) => (float[T, 8] y) {{ {STEPS} }}", **CONSTANTS)
    assert fused(BiasGeluPass(), model, {"t": drawn(3, 8)}, atol=2e-5) == ["Gelu"]


NEAR = {
    "no constant": "t = Add(x, s)\n y = Gelu(t)",
    "a bias of one number": "t = Add(x, one)\n y = Gelu(t)",
    "the sum is used": "t = Add(x, c)\n y = Gelu(t)\n z = Exp(t)",
    "another factor": "t = Add(x, c)\n" + STEPS.replace("Mul(p, k)", "Mul(p, one)"),
}


@pytest.mark.parametrize("body", NEAR.values(), ids=NEAR)
def test_what_is_no_bias_is_left(body: str) -> None:
    outputs = "float[8, 8] y, float[8, 8] z" if "z =" in body else "float[8, 8] y"
    untouched(BiasGeluPass(), model_of(f"(float[8, 8] x, float[8] s) => ({outputs}) {{ {body} }}", **CONSTANTS))
