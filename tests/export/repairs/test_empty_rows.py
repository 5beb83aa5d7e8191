"""EmptyRowsPass: rows without a key become zero where they are NaN, and no other row changes."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from maskport.export.cases.patterns import padding_patterns
from maskport.export.precision import to_precision
from maskport.export.repairs import apply, offered

from ..symbolic.attention_text import HEADS, SIZE, attention

PADDING = "b = Cast<to=9>(m)\n k8 = Unsqueeze(b, key_axes)\n"
CAUSAL = "past = GreaterOrEqual(queries, keys)\n c = And(k8, past)"
FAULTY = {
    "filled": PADDING + "masked = Where(k8, s, inf)",
    "added": PADDING + "a = Where(k8, f0, inf)\n masked = Add(s, a)",
    "causal and padding": PADDING + CAUSAL,
}
GUARDED = "n = IsNaN(w)\n z = Where(n, f0, w)\n y = MatMul(z, v)"
NEAR_MISSES = {
    "a finite fill, which gives the mean": (PADDING + "masked = Where(k8, s, low)", "y = MatMul(w, v)"),
    "a causal mask, which leaves every row a key": ("c = GreaterOrEqual(queries, keys)", "y = MatMul(w, v)"),
    "a guard that is there": (PADDING + "masked = Where(k8, s, inf)", GUARDED),
}


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, feeds)]


@pytest.mark.parametrize(("dtype", "numpy"), [("float", np.float32), ("float16", np.float16)])
@pytest.mark.parametrize("body", FAULTY.values(), ids=FAULTY)
def test_rows_without_a_key_are_zero_and_all_others_as_they_were(body: str, dtype: str, numpy: type) -> None:
    source = ir.from_proto(attention(body))
    if dtype == "float16":
        source = to_precision(source, dtype)
    model = source.clone()
    assert apply(model, ["empty-rows"]) == {"empty-rows": 1}
    assert offered(model) == {}
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    rng = np.random.default_rng(0)
    empty_seen = False
    for keep in padding_patterns(3, 5, rng).values():
        q, k, v = (rng.standard_normal((3, HEADS, 5, SIZE)).astype(numpy) for _ in range(3))
        feeds = {"q": q, "k": k, "v": v, "m": keep.astype(np.int64)}
        (before,), (after,) = run(source, feeds), run(model, feeds)
        allowed = keep[:, None, :] & (np.tri(5, dtype=bool) if "past" in body else True)
        empty = np.broadcast_to(~allowed.any(-1)[:, None], before.shape[:3])
        empty_seen = empty_seen or bool(empty.any())
        assert np.isnan(before[empty]).all()
        assert (after[empty] == 0).all()
        np.testing.assert_array_equal(after[~empty], before[~empty])
    assert empty_seen


@pytest.mark.parametrize(("body", "after"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_all_else_stays(body: str, after: str) -> None:
    assert "empty-rows" not in offered(ir.from_proto(attention(body, after=after)))


def test_weights_that_are_an_output_are_guarded_under_their_name() -> None:
    proto = attention(FAULTY["filled"])
    proto.graph.output.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, ["B", HEADS, "S", "S"]))
    model = ir.from_proto(proto)
    assert apply(model, ["empty-rows"]) == {"empty-rows": 1}
    assert [value.name for value in model.graph.outputs] == ["y", "w"]
    q = np.ones((1, HEADS, 2, SIZE), np.float32)
    y, w = run(model, {"q": q, "k": q, "v": q, "m": np.array([[0, 0]])})
    assert (y == 0).all()
    assert (w == 0).all()
