"""HalfFillPass: infinite fills become finite, and the mask means what was meant; all else stays."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from maskport.export import export
from maskport.export.cases.patterns import padding_patterns
from maskport.export.repairs import apply, offered
from torch import nn

from ..symbolic.attention_text import attention


class Textbook(nn.Module):
    """Scores plus the mask times -1e9, as textbooks have it."""

    def forward(self, q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = q @ q.transpose(1, 2) / 8**0.5
        return (scores + (1 - mask.to(q.dtype))[:, None] * -1e9).softmax(-1) @ q


@pytest.fixture(scope="module")
def faulty() -> ir.Model:
    inputs = {"q": torch.randn(2, 5, 8), "mask": torch.ones(2, 5, dtype=torch.int64)}
    shapes = {name: {0: "batch", 1: "seq"} for name in inputs}
    return export(Textbook(), inputs, dynamic_shapes=shapes, dtype="float16", check=False).model


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> np.ndarray:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def test_the_textbook_recipe_in_half_is_repaired(faulty: ir.Model) -> None:
    model = faulty.clone()
    assert offered(model) == {"half-fill": 1}
    assert apply(model, ["half-fill"]) == {"half-fill": 1}
    assert offered(model) == {}
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    rng = np.random.default_rng(0)
    for keep in padding_patterns(3, 7, rng).values():
        q = rng.standard_normal((3, 7, 8)).astype(np.float16)
        feeds = {"q": q, "mask": keep.astype(np.int64)}
        # The file as it is: NaN wherever a key is kept.
        assert np.isnan(run(faulty, feeds)[keep.any(1)]).all()
        expected = Textbook()(torch.from_numpy(q).float(), torch.from_numpy(keep.astype(np.int64))).numpy()
        actual = run(model, feeds).astype(np.float32)
        assert np.isfinite(actual).all()
        rows = keep.any(1)
        np.testing.assert_allclose(actual[rows], expected[rows], atol=0.02)
        # A hidden key has a weight of zero, not a small one.
        other = {**feeds, "q": np.where(keep[:, :, None], q, q + np.float16(3))}
        np.testing.assert_array_equal(run(model, other)[keep], run(model, feeds)[keep])


KEY = "c = Cast<to=1>(m)\n off = Sub(f1, c)\n key = Unsqueeze(off, key_axes)\n"
NEAR_MISSES = {
    "a finite fill": KEY + "f = Constant<value_float=-1e9>()\n added = Mul(key, f)\n masked = Add(s, added)",
    "an infinity that is chosen": "b = Cast<to=9>(m)\n u = Unsqueeze(b, key_axes)\n masked = Where(u, s, inf)",
    "a product that reaches no Softmax": KEY + "idle = Mul(key, inf)\n gone = Sigmoid(idle)\n masked = Identity(s)",
    "a fill that the caller gives": KEY + "added = Mul(key, given)\n masked = Add(s, added)",
}


@pytest.mark.parametrize("body", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_all_else_stays(body: str) -> None:
    assert "half-fill" not in offered(ir.from_proto(attention(body, "int64[B,S] m, float[] given")))


@pytest.mark.parametrize("operands", ["key, inf", "inf, key"])
def test_both_orders_and_float32(operands: str) -> None:
    body = f"{KEY} added = Mul({operands})\n moved = Identity(added)\n masked = Add(moved, s)"
    model = ir.from_proto(attention(body))
    assert apply(model, ["half-fill"]) == {"half-fill": 1}
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 4, 3, 8)).astype(np.float32) for _ in range(3))
    y = run(model, {"q": q, "k": k, "v": v, "m": np.array([[1, 1, 0]])})
    shown = run(model, {"q": q[:, :, :2], "k": k[:, :, :2], "v": v[:, :, :2], "m": np.array([[1, 1]])})
    np.testing.assert_allclose(y[:, :, :2], shown, atol=1e-6)
