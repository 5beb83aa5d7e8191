"""RmsNormPass: norms that are written in steps are one operator; what only looks like one stays."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.export.passes import RmsNormPass

from .graphs import drawn, fused, model_of, untouched

CONSTANTS = {
    "w": drawn(8, seed=1),
    "e": np.float32(1e-3),
    "two": np.float32(2),
    "last": np.array([-1], np.int64),
    "first": np.array([0], np.int64),
}
MEAN = "m = ReduceMean<keepdims = 1>(p, last)\n a = Add(m, e)\n r = Sqrt(a)\n"
SCALED = "i = Reciprocal(r)\n n = Mul(x, i)\n"
FORMS = {
    "a power": "p = Pow(x, two)\n" + MEAN + SCALED + "y = Mul(w, n)",
    "a square": "p = Mul(x, x)\n" + MEAN + SCALED + "y = Mul(n, w)",
    "a quotient": "p = Mul(x, x)\n" + MEAN + "n = Div(x, r)\n y = Mul(n, w)",
}


@pytest.mark.parametrize("body", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("named", ["T", "B, S", "B, S, H"])
def test_a_norm_in_steps_is_one_operator(body: str, named: str) -> None:
    x = drawn(*range(2, 2 + len(named.split(","))), 8)
    model = model_of(f"(float[{named}, 8] x) => (float[{named}, 8] y) {{ {body} }}", **CONSTANTS)
    assert fused(RmsNormPass(), model, {"x": x}) == ["RMSNormalization"]


HALF = "f = Cast<to = 1>(h)\n p = Pow(f, two)\n" + MEAN + "i = Reciprocal(r)\n n = Mul(f, i)\n"
CASTS = {
    "scaled in half precision": "k = Cast<to = 10>(n)\n y = Mul(v, k)",
    "scaled in float32": "z = Mul(n, w)\n y = Cast<to = 10>(z)",
}


@pytest.mark.parametrize("end", CASTS.values(), ids=CASTS)
def test_casts_around_a_norm_are_in_the_operator(end: str) -> None:
    text = f"(float16[T, 8] h) => (float16[T, 8] y) {{ {HALF} {end} }}"
    model = model_of(text, **CONSTANTS, v=CONSTANTS["w"].astype(np.float16))
    left = fused(RmsNormPass(), model, {"h": drawn(5, 8, dtype=np.float16)}, atol=4e-3)
    assert [name for name in left if name != "Cast"] == ["RMSNormalization"]
    # Large values, whose squares are no half-precision numbers.
    assert "Pow" not in left


NEAR = {
    "a cube": FORMS["a power"].replace("two", "three"),
    "a product of two": "p = Mul(x, s)\n" + MEAN + SCALED + "y = Mul(w, n)",
    "another axis": FORMS["a power"].replace("last", "first"),
    "another value is scaled": FORMS["a power"].replace("Mul(x, i)", "Mul(s, i)"),
    "the inverse quotient": FORMS["a quotient"].replace("Div(x, r)", "Div(r, x)"),
    "no scale": "p = Pow(x, two)\n" + MEAN + "i = Reciprocal(r)\n y = Mul(x, i)",
    "a scale for each row": FORMS["a power"].replace("Mul(w, n)", "Mul(s, n)"),
    "its mean is used": FORMS["a power"] + "\n z = Exp(m)",
}


@pytest.mark.parametrize("body", NEAR.values(), ids=NEAR)
def test_what_is_no_norm_is_left(body: str) -> None:
    outputs = "float[8, 8] y, float[8, 1] z" if "z =" in body else "float[8, 8] y"
    model = model_of(f"(float[8, 8] x, float[8, 8] s) => ({outputs}) {{ {body} }}", **CONSTANTS, three=np.float32(3))
    untouched(RmsNormPass(), model)


def test_an_older_operator_set_is_left() -> None:
    text = f"(float[T, 8] x) => (float[T, 8] y) {{ {FORMS['a power']} }}"
    untouched(RmsNormPass(), model_of(text, opset=20, **CONSTANTS))
