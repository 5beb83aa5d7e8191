"""RotaryBatchPass: caches of batch 1 get the batch of x, all others stay as they are."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from maskport.export import probe
from maskport.export.repairs import repair, rotary_batch
from maskport.export.repairs.rotary_batch import RotaryBatchPass
from onnx.reference import ReferenceEvaluator

# Two layers that share their caches, as PyTorch exports them.
SHARED = """
<ir_version: 10, opset_import: ["": 23]>
rotary (float[batch, 2, seq, 4] x, float[1, seq, 2] cos, float[1, seq, 2] sin) => (float[batch, 2, seq, 4] y) {
    first = RotaryEmbedding(x, cos, sin)
    y = RotaryEmbedding(first, cos, sin)
}
"""
# The same, with caches whose shapes have to be inferred: the exporter doesn't write them.
INFERRED = """
<ir_version: 10, opset_import: ["": 23]>
rotary (float[batch, 2, seq, 4] x, float[1, seq, 2] angles) => (float[batch, 2, seq, 4] y) {
    cos = Cos(angles)
    sin = Sin(angles)
    y = RotaryEmbedding(x, cos, sin)
}
"""
NEAR_MISSES = {
    "the inferred caches have the batch": INFERRED.replace("[1, seq, 2]", "[batch, seq, 2]"),
    "the caches have the batch": SHARED.replace("float[1, seq, 2]", "float[batch, seq, 2]"),
    "x has batch 1": SHARED.replace("float[batch, 2, seq, 4] x", "float[1, 2, seq, 4] x").replace(
        "first = RotaryEmbedding(x, cos, sin)\n    y = RotaryEmbedding(first", "y = RotaryEmbedding(x"
    ),
    "rows are picked by position_ids": """
<ir_version: 10, opset_import: ["": 23]>
rotary (float[batch, 2, seq, 4] x, float[64, 2] cos, float[64, 2] sin, int64[batch, seq] ids) => (float[a, b, c, d] y) {
    y = RotaryEmbedding(x, cos, sin, ids)
}
""",
    "another operator of that name": SHARED.replace('["": 23]', '["": 23, "com.microsoft": 1]').replace(
        "RotaryEmbedding(", "com.microsoft.RotaryEmbedding("
    ),
}


def model_of(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(text))


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def feeds(batch: int, seq: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"x": (batch, 2, seq, 4), "cos": (1, seq, 2), "sin": (1, seq, 2)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotary_batch, "shares_rotary_caches", lambda: False)


@pytest.mark.usefixtures("wanted")
def test_caches_of_batch_one_are_expanded_to_a_batch_that_is_read_once() -> None:
    model = model_of(SHARED)
    assert repair(model) == ("rotary-batch",)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert [operators(model).count(name) for name in ("Expand", "Concat", "Shape")] == [4, 1, 1]
    assert repair(model) == ()


@pytest.mark.usefixtures("wanted")
def test_batches_of_other_names_are_read_apart() -> None:
    text = SHARED.replace("sin) => (", "sin, float[other, 2, seq, 4] z) => (float[other, 2, seq, 4] w, ")
    model = model_of(text.replace("    y =", "    w = RotaryEmbedding(z, cos, sin)\n    y ="))
    repair(model)
    assert operators(model).count("Shape") == 2
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    given = feeds(3, 5)
    w, y = session.run(None, {**given, "z": feeds(2, 5)["x"]})
    assert (len(w), len(y)) == (2, 3)


@pytest.mark.usefixtures("wanted")
def test_caches_without_a_shape_are_seen_through() -> None:
    model = model_of(INFERRED)
    assert repair(model) == ("rotary-batch",)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert operators(model).count("Expand") == 2


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize("text", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_all_else_stays(text: str) -> None:
    model = model_of(text)
    before = operators(model)
    assert not RotaryBatchPass()(model).modified
    assert operators(model) == before


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize(("batch", "seq"), [(1, 1), (1, 5), (2, 1), (3, 7)])
def test_every_row_is_rotated_as_if_it_were_alone(batch: int, seq: int) -> None:
    model = model_of(SHARED)
    repair(model)
    given = feeds(batch, seq)
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    y = np.asarray(session.run(None, given)[0])
    alone = ReferenceEvaluator(onnx.parser.parse_model(SHARED))
    for row in range(batch):
        expected = alone.run(None, {**given, "x": given["x"][row : row + 1]})[0]
        np.testing.assert_allclose(y[row : row + 1], expected, atol=1e-6)


def test_nothing_is_done_where_the_runtime_needs_no_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotary_batch, "shares_rotary_caches", lambda: True)
    model = model_of(SHARED)
    assert repair(model) == ()
    assert operators(model) == ["RotaryEmbedding", "RotaryEmbedding"]


def test_the_probe_tells_what_the_runtime_does() -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    text = onnx.parser.parse_model(SHARED).SerializeToString()
    session = ort.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    quiet = ort.RunOptions()
    quiet.log_severity_level = 4
    try:
        runs = bool(session.run(None, feeds(2, 3), quiet))
    except Exception:
        runs = False
    assert probe.shares_rotary_caches() == runs


def test_the_probe_is_quiet_and_runs_once(capfd: pytest.CaptureFixture[str]) -> None:
    probe.shares_rotary_caches.cache_clear()
    assert probe.shares_rotary_caches() == probe.shares_rotary_caches()
    assert probe.shares_rotary_caches.cache_info().misses == 1
    assert capfd.readouterr() == ("", "")
