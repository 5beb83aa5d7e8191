"""fewer_launches: the fusions one after the other, on a layer's parts."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.export.passes import fewer_launches

from .graphs import drawn, model_of, operators, run

MLP = (
    "h = MatMul(x, up)\n i = Add(h, ub)\n g = Gelu(i)\n d = MatMul(g, down)\n e = Add(d, db)\n r = Add(e, x)\n"
    "y = LayerNormalization<axis = -1>(r, w, w)"
)
WEIGHTS = {"up": drawn(8, 16, seed=1), "ub": drawn(16, seed=2), "down": drawn(16, 8, seed=3), "db": drawn(8, seed=4)}
ROOT = (
    "p = Mul(x, x)\n m = ReduceMean(p, last)\n a = Add(m, eps)\n s = Sqrt(a)\n n = Div(x, s)\n z = Mul(n, w)\n"
    "k = MatMul(z, up)\n q = MatMul(z, up2)\n v = Sigmoid(k)\n o = Mul(v, q)\n d = MatMul(o, down)\n t = Add(x, d)\n"
    "p2 = Mul(t, t)\n m2 = ReduceMean(p2, last)\n a2 = Add(m2, eps)\n s2 = Sqrt(a2)\n n2 = Div(t, s2)\n y = Mul(n2, w)"
)
LAYERS = {
    "Gelu": (MLP, ["MatMul", "BiasGelu", "MatMul", "SkipLayerNormalization"]),
    "gates": (
        ROOT,
        [
            *("RMSNormalization", "MatMul", "Split", "Sigmoid", "Mul", "MatMul"),
            "SkipSimplifiedLayerNormalization",
        ],
    ),
}


@pytest.mark.parametrize(("body", "expected"), LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("named", ["T", "B, S"])
def test_a_layer_is_few_operators(body: str, expected: list[str], named: str) -> None:
    constants = {**WEIGHTS, "up2": drawn(8, 16, seed=5), "w": drawn(8, seed=6), "eps": np.float32(1e-5)}
    constants["last"] = np.array([-1], np.int64)
    model = model_of(f"(float[{named}, 8] x) => (float[{named}, 8] y) {{ {body} }}", **constants)
    feeds = {"x": drawn(*range(2, 2 + len(named.split(","))), 8)}
    before = run(model, feeds)
    done = fewer_launches(model)
    assert any(done.values())
    assert operators(model) == expected
    np.testing.assert_allclose(run(model, feeds)[0], before[0], atol=1e-5)
    # What is done is done.
    assert not any(fewer_launches(model).values())
