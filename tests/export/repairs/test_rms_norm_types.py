"""RmsNormTypesPass: a half-precision input gets the float32 of its scale, all others stay as they are."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from maskport.export import probe
from maskport.export.repairs import repair, rms_norm_types

MIXED = """
<ir_version: 10, opset_import: ["": 23]>
norm (float16[rows, 4] x, float[4] scale) => (float[rows, 4] y) {
    y = RMSNormalization(x, scale)
}
"""
NEAR_MISSES = {
    "both float16": MIXED.replace("float[", "float16["),
    "both float32": MIXED.replace("float16[", "float["),
    "the scale is the narrow one": MIXED.replace("float16[", "float32[")
    .replace("float[", "float16[")
    .replace("float32[", "float["),
    "another operator of that name": MIXED.replace('["": 23]', '["": 23, "other": 1]').replace(
        "RMSNorm", "other.RMSNorm"
    ),
}


def model_of(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(text))


def run(model: bytes, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x, "scale": scale})[0])


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rms_norm_types, "mixes_rms_norm_types", lambda: False)


@pytest.mark.usefixtures("wanted")
def test_a_half_input_is_cast_and_scaled_in_float32() -> None:
    model = model_of(MIXED)
    assert repair(model) == ("rms-norm-types",)
    assert [node.op_type for node in model.graph] == ["Cast", "RMSNormalization"]
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    rng = np.random.default_rng(0)
    x, scale = (10 * rng.standard_normal((3, 4))).astype(np.float16), rng.standard_normal(4).astype(np.float32)
    wide = x.astype(np.float32)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * scale
    # Rounded to half before it is scaled, it would be off by 5e-4.
    np.testing.assert_allclose(run(proto.SerializeToString(), x, scale), expected, rtol=1e-5)
    assert repair(model) == ()


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize("text", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_all_else_stays(text: str) -> None:
    model = model_of(text)
    assert repair(model) == ()
    assert [node.op_type for node in model.graph] == ["RMSNormalization"]


def test_nothing_is_done_where_the_runtime_needs_no_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rms_norm_types, "mixes_rms_norm_types", lambda: True)
    model = model_of(MIXED)
    assert repair(model) == ()
    assert [node.op_type for node in model.graph] == ["RMSNormalization"]


def test_the_probe_tells_what_the_runtime_does() -> None:
    text = onnx.parser.parse_model(MIXED).SerializeToString()
    try:
        runs = bool(run(text, np.ones((1, 4), np.float16), np.ones(4, np.float32)).all())
    except Exception:
        runs = False
    assert probe.mixes_rms_norm_types() == runs
