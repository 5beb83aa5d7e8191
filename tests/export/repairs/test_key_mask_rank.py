"""KeyMaskRankPass: masks of one row get a row for each query, all others stay."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from maskport.export import probe
from maskport.export.repairs import apply, key_mask_rank, offered
from onnx.reference import ReferenceEvaluator

FOUR = "float[B,2,S,4] q, float[B,2,T,4] k"
MASKED = """<ir_version: 10, opset_import: ["": 23]>
g ({inputs}) => (float[B,L,M,N] y) {{ y = Attention{attributes}(q, k, k, m) }}"""
THREE = "float[B,S,8] q, float[B,T,8] k"
FAULTY = {
    "[B,1,1,T]": (f"{FOUR}, bool[B,1,1,T] m", "", (3, 1, 1, 5)),
    "[1,T]": (f"{FOUR}, bool[1,T] m", "", (1, 5)),
    "[1,1,1,T]": (f"{FOUR}, bool[1,1,1,T] m", "", (1, 1, 1, 5)),
    "[T]": (f"{FOUR}, bool[T] m", "", (5,)),
    "a float mask, three dimensions, causal": (
        f"{THREE}, float[B,1,1,T] m",
        "<q_num_heads=2, kv_num_heads=2, is_causal=1>",
        (3, 1, 1, 5),
    ),
}


def model_of(inputs: str, attributes: str) -> ir.Model:
    text = MASKED.format(inputs=inputs, attributes=attributes)
    if THREE in inputs:
        text = text.replace("float[B,L,M,N] y", "float[B,L,M] y")
    return ir.from_proto(onnx.parser.parse_model(text))


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options, quiet = ort.SessionOptions(), ort.RunOptions()
    options.log_severity_level = quiet.log_severity_level = 4
    data = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds, quiet)[0])


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_mask_rank, "broadcasts_attention_masks", lambda: False)


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize(("inputs", "attributes", "shape"), FAULTY.values(), ids=FAULTY)
def test_masks_of_one_row_get_one_for_each_query(inputs: str, attributes: str, shape: tuple[int, ...]) -> None:
    model = model_of(inputs, attributes)
    assert offered(model) == {"key-mask-rank": 1}
    assert apply(model, ["key-mask-rank"]) == {"key-mask-rank": 1}
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert offered(model) == {}
    rng = np.random.default_rng(0)
    for keep in (np.ones(shape, bool), rng.random(shape) < 0.5):
        keep[..., 0] = True
        q, k = (rng.standard_normal((3, 2, 5, 4)).astype(np.float32) for _ in range(2))
        # onnx.reference draws the causal triangle in the shape of the mask, of which one row is all true.
        allowed = keep & np.tri(5, dtype=bool) if "causal" in attributes else keep
        attend = torch.from_numpy(np.broadcast_to(allowed, (3, 2, 5, 5)).copy())
        tq, tk = (torch.from_numpy(array) for array in (q, k))
        expected = torch.nn.functional.scaled_dot_product_attention(tq, tk, tk, attn_mask=attend).numpy()
        if THREE in inputs:
            q, k, expected = (array.transpose(0, 2, 1, 3).reshape(3, -1, 8) for array in (q, k, expected))
        m = np.where(keep, 0, -1e9).astype(np.float32) if "float[B,1,1,T] m" in inputs else keep
        np.testing.assert_allclose(run(model, {"q": q, "k": k, "m": m}), expected, atol=1e-5)


@pytest.mark.usefixtures("wanted")
def test_the_keys_of_a_cache_count() -> None:
    text = """<ir_version: 10, opset_import: ["": 23]>
    g (float[B,2,S,4] q, float[B,2,S,4] k, bool[B,1,1,T] m, float[B,2,P,4] past)
    => (float[B,2,S,4] y, float[B,2,T,4] pk, float[B,2,T,4] pv) { y, pk, pv = Attention(q, k, k, m, past, past) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    source = ir.to_proto(model)
    assert apply(model, ["key-mask-rank"]) == {"key-mask-rank": 1}
    rng = np.random.default_rng(0)
    q, k, past = (rng.standard_normal((2, 2, length, 4)).astype(np.float32) for length in (3, 3, 4))
    feeds = {"q": q, "k": k, "past": past, "m": np.array([1, 1, 0, 1, 1, 0, 1], bool)[None, None, None].repeat(2, 0)}
    np.testing.assert_allclose(run(model, feeds), ReferenceEvaluator(source).run(None, feeds)[0], atol=1e-5)


NEAR_MISSES = {
    "a row for each query": (f"{FOUR}, bool[B,1,S,T] m", ""),
    "rows that are not known": (f"{FOUR}, bool[B,1,U,T] m", ""),
    "one query": (f"{FOUR.replace('S', '1')}, bool[B,1,1,T] m", ""),
}


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize(("inputs", "attributes"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_all_else_stays(inputs: str, attributes: str) -> None:
    assert offered(model_of(inputs, attributes)) == {}


def test_nothing_is_done_where_the_runtime_needs_no_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_mask_rank, "broadcasts_attention_masks", lambda: True)
    assert offered(model_of(*FAULTY["[B,1,1,T]"][:2])) == {}


def test_the_probe_tells_what_the_runtime_does() -> None:
    model = model_of(*FAULTY["[B,1,1,T]"][:2])
    q = np.ones((1, 2, 3, 4), np.float32)
    feeds = {"q": q, "k": np.ones((1, 2, 2, 4), np.float32), "m": np.ones((1, 1, 1, 2), bool)}
    try:
        runs = bool((run(model, feeds) == 1).all())
    except Exception:
        runs = False
    assert probe.broadcasts_attention_masks() == runs
