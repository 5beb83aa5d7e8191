"""Whole models: functions, subgraphs, files, and what nothing runs."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from maskport.export.twins import TWINS, evaluate, lacking
from onnx import helper

MODEL = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1, "local" : 1]>
agraph (float[B, 4] x, bool c) => (float[B, 4] y, float[B, 4] z) {
    y = local.twice (x)
    z = If (c) <
        then_branch = then () => (float[B, 4] t) { t = com.microsoft.QuickGelu (x) },
        else_branch = otherwise () => (float[B, 4] e) { e = local.twice (y) }
    >
}
<domain: "local", opset_import: ["" : 21, "com.microsoft" : 1]>
twice (a) => (b) {
    g = com.microsoft.Gelu (a)
    b = Add (g, g)
}
""")
X = np.array([[-1, 0, 1, 2]], np.float32)


def gelu(x: np.ndarray) -> np.ndarray:
    """Gelu, number by number."""
    return np.array([[n * (1 + math.erf(n / math.sqrt(2))) / 2 for n in row] for row in x.tolist()])


def test_twins_are_run_in_functions_and_subgraphs() -> None:
    outputs = evaluate(MODEL, {"x": X, "c": np.array(False)})
    np.testing.assert_allclose(outputs["y"], 2 * gelu(X), atol=1e-6)
    np.testing.assert_allclose(outputs["z"], 2 * gelu(outputs["y"]), atol=1e-6)
    quick = evaluate(MODEL, {"x": X, "c": np.array(True)})["z"]
    np.testing.assert_allclose(quick, X / (1 + np.exp(-1.702 * X)), atol=1e-6)


def test_a_model_is_itself_its_bytes_or_its_file(tmp_path: Path) -> None:
    feeds = {"x": X, "c": np.array(True)}
    expected = evaluate(MODEL, feeds)
    onnx.save(MODEL, tmp_path / "model.onnx")
    for model in (MODEL.SerializeToString(), tmp_path / "model.onnx", str(tmp_path / "model.onnx")):
        for name, array in evaluate(model, feeds).items():
            np.testing.assert_array_equal(array, expected[name])


def test_weights_beside_the_file_are_read(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        agraph (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { y = Mul (x, w) }""")
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.data")
    assert evaluate(tmp_path / "m.onnx", {"x": X[0]})["y"].tolist() == [-1, 0, 3, 8]


def test_a_missing_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"\['c'\] are missing"):
        evaluate(MODEL, {"x": X})


def test_what_nothing_runs_is_named_wherever_it_is() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    assert lacking(model) == []
    model.functions[0].node.append(helper.make_node("Unheard", ["g"], ["u"], domain="com.microsoft"))
    model.graph.node[1].attribute[0].g.node.append(helper.make_node("Longformer", ["x"], ["l"], domain="com.microsoft"))
    model.graph.node.append(helper.make_node("NoSuchOperator", ["x"], ["n"]))
    expected = ["ai.onnx.NoSuchOperator", "com.microsoft.Longformer", "com.microsoft.Unheard"]
    assert lacking(model) == expected
    with pytest.raises(NotImplementedError, match=r"com\.microsoft\.Longformer, com\.microsoft\.Unheard"):
        evaluate(model, {"x": X, "c": np.array(True)})


def test_functions_of_onnx_are_known() -> None:
    """Those with a body, and those whose body depends on types."""
    for op in ("HardSwish", "Mish", "SoftmaxCrossEntropyLoss", "Swish"):
        node = helper.make_node(op, ["x"] if "Loss" not in op else ["x", "c"], ["y"])
        model = helper.make_model(helper.make_graph([node], op, [], []), opset_imports=[helper.make_opsetid("", 24)])
        assert lacking(model) == []


def test_ops_of_onnx_runtime_need_no_import_as_it_needs_none() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    del model.functions[:]
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft"))
    del model.graph.output[1:]
    del model.opset_import[1:]
    before = model.SerializeToString()
    assert lacking(model) == []
    np.testing.assert_allclose(evaluate(model, {"x": X, "c": np.array(True)})["y"], gelu(X), atol=1e-6)
    assert model.SerializeToString() == before


def test_every_twin_is_a_class_of_its_operator() -> None:
    assert len({(twin.op_domain, twin.__name__) for twin in TWINS}) == len(TWINS)


def test_bfloat16_runs() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        agraph (bfloat16[B, 4] x) => (bfloat16[B, 4] y) { g = com.microsoft.Gelu (x)  y = Softmax (g) }""")
    output = evaluate(model, {"x": X.astype(ml_dtypes.bfloat16)})["y"]
    assert output.dtype == ml_dtypes.bfloat16
    assert abs(output.astype(np.float32).sum() - 1) < 0.01


def test_numbers_that_leave_their_type_are_not_warned_of() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        agraph (float16[4] x) => (float16[4] y) { s = Mul (x, x)  l = Log (s)  y = com.microsoft.QuickGelu (l) }""")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output = evaluate(model, {"x": np.array([0, 1, -1, 60000], np.float16)})["y"]
    assert output[1:3].tolist() == [0, 0]
    assert np.isposinf(output[3])
