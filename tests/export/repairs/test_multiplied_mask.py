"""MultipliedMaskPass: keys whose scores are multiplied with 0 are hidden; proper masks and plain factors stay."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from maskport.export import inspect
from maskport.export.cases.patterns import padding_patterns
from maskport.export.repairs import apply, offered

from ..symbolic.attention_text import HEADS, SIZE, attention

KEY = "c8 = Cast<to=1>(m)\n key = Unsqueeze(c8, key_axes)\n"
TRIANGLE = "past = GreaterOrEqual(queries, keys)\n t = Cast<to=1>(past)\n"
FAULTY = {
    "padding": KEY + "masked = Mul(s, key)",
    "padding, the mask first": KEY + "masked = Mul(key, s)",
    "before the scale": KEY + "p = Mul(raw, key)\n masked = Mul(p, scale)",
    "with a bias": KEY + "p = Mul(s, key)\n masked = Add(p, rel)",
    "a mask of both": KEY
    + "past = GreaterOrEqual(queries, keys)\n t = Cast<to=1>(past)\n b = Mul(t, key)\n masked = Mul(s, b)",
    "causal alone": TRIANGLE + "masked = Mul(s, t)",
    "two products": KEY
    + "past = GreaterOrEqual(queries, keys)\n t = Cast<to=1>(past)\n p = Mul(s, t)\n masked = Mul(p, key)",
}


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> np.ndarray:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


@pytest.mark.parametrize("body", FAULTY.values(), ids=FAULTY)
def test_hidden_keys_have_no_weight(body: str) -> None:
    source = ir.from_proto(attention(body, f"int64[B,S] m, float[1,{HEADS},S,S] rel"))
    model = source.clone()
    count = 2 if "p = Mul(s, t)" in body else 1
    assert offered(model)["multiplied-mask"] == count
    assert apply(model, ["multiplied-mask"]) == {"multiplied-mask": count}
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert "multiplied-mask" not in offered(model)
    # What was no mask is read as one.
    assert inspect(source).sites == ()
    names = [name for name, part in (("causal", "past"), ("padding(m)", "key_axes")) if part in body]
    read = ["~dense(val_1)"] if "Mul(t, key)" in body else [" & ".join(names)]
    assert [str(site.mask) for site in inspect(model).sites] == read
    rng = np.random.default_rng(0)
    changed = False
    for keep in padding_patterns(3, 6, rng).values():
        q, k, v = (rng.standard_normal((3, HEADS, 6, SIZE)).astype(np.float32) for _ in range(3))
        rel = np.zeros((1, HEADS, 6, 6), np.float32)
        feeds = {"q": q, "k": k, "v": v, "m": keep.astype(np.int64), "rel": rel}
        allowed = np.broadcast_to(keep[:, None, None, :] if "key_axes" in body else np.True_, (3, 1, 6, 6))
        if "past" in body:
            allowed = allowed & np.tri(6, dtype=bool)
        tensors = [torch.from_numpy(array) for array in (q, k, v)]
        expected = torch.nn.functional.scaled_dot_product_attention(
            *tensors, attn_mask=torch.from_numpy(allowed.copy())
        ).numpy()
        valid = np.broadcast_to(allowed.any(-1), (3, HEADS, 6))
        actual = run(model, feeds)
        assert np.isfinite(actual).all()
        np.testing.assert_allclose(actual[valid], expected[valid], atol=2e-5)
        changed = changed or np.abs(run(source, feeds) - actual)[valid].max(initial=0) > 0.05
    # What the file computed was something else.
    assert changed


ADDED = KEY + "p = Mul(s, key)\n off = Sub(f1, key)\n big = Constant<value_float=-1e10>()\n add = Mul(off, big)\n"
NEAR_MISSES = {
    "a mask that is added as well, as GPT-2 had it": ADDED + "masked = Add(p, add)",
    "one that is filled as well": KEY
    + "p = Mul(s, key)\n b = Cast<to=9>(m)\n k8 = Unsqueeze(b, key_axes)\n masked = Where(k8, p, inf)",
    "a constant scale": "masked = Mul(s, ten)",
    "a scale of the number of keys": "n = Cast<to=1>(scalar)\n r = Sqrt(n)\n masked = Mul(s, r)",
    "a scale that grows with the length": "n = Cast<to=1>(scalar)\n masked = Mul(s, n)",
    "a factor for each key that the caller gives": "g = Unsqueeze(f, key_axes)\n masked = Mul(s, g)",
    "a factor of positions": "n = Cast<to=1>(positions)\n r = Log(n)\n masked = Mul(s, r)",
    "a product that is an output, too": KEY + "p = Mul(s, key)\n masked = Identity(p)\n other = Neg(p)",
    "scores times scores": "masked = Mul(s, s)",
}


@pytest.mark.parametrize("body", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_all_else_stays(body: str) -> None:
    assert "multiplied-mask" not in offered(ir.from_proto(attention(body, "int64[B,S] m, float[B,S] f")))


def test_a_mask_on_the_weights_stays() -> None:
    model = attention(KEY + "masked = Identity(s)", after="z = Mul(w, key)\n y = MatMul(z, v)")
    assert "multiplied-mask" not in offered(ir.from_proto(model))
