"""clean: constants are folded, twins shared and idle nodes removed; lengths, names and metadata stay."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from maskport.export.passes import clean
from maskport.export.passes.clean import FOLD_LIMIT


def model_of(text: str) -> ir.Model:
    model = ir.from_proto(onnx.parser.parse_model(text))
    return ir.passes.common.ShapeInferencePass()(model).model


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, feeds)]


# A constant sum, a product that is computed twice, and one that nothing reads.
IDLE = """<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1, "unused": 1]>
g (float[B,S] x) => (float[B,S] y) {
    one = Constant<value_float=1.0>()
    two = Add(one, one)
    first = Mul(x, two)
    second = Mul(x, two)
    idle = Sigmoid(x)
    y = Add(first, second)
}"""


def test_constants_twins_and_idle_nodes_go() -> None:
    model = model_of(IDLE)
    assert clean(model)
    assert operators(model) == ["Mul", "Add"]
    assert dict(model.opset_imports) == {"": 20}
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(model, {"x": x})[0], 4 * x)


def test_a_second_time_there_is_nothing_to_do() -> None:
    model = model_of(IDLE)
    clean(model)
    before = ir.to_proto(model).SerializeToString()
    assert not clean(model)
    assert ir.to_proto(model).SerializeToString() == before


def test_metadata_of_what_stays_is_kept_and_none_is_added() -> None:
    model = model_of(IDLE)
    model.metadata_props["maskport.io"] = "{}"
    for node in model.graph:
        node.metadata_props["scope"] = "layer"
    clean(model)
    assert model.metadata_props == {"maskport.io": "{}"}
    assert all(node.metadata_props == {"scope": "layer"} for node in model.graph)
    assert not any(value.metadata_props for value in model.graph.initializers.values())


LENGTHS = """<ir_version: 10, opset_import: ["": 20]>
g (float[B,S,4] x) => (int64[N] y) {
    zero = Constant<value_int=0>()
    one = Constant<value_int=1>()
    axis = Constant<value_ints=[0]>()
    shape = Shape<start=1, end=2>(x)
    length = Squeeze(shape, axis)
    y = Range(zero, length, one)
}"""


def test_a_length_of_the_inputs_stays_one() -> None:
    model = model_of(LENGTHS)
    clean(model)
    for length in (1, 7):
        x = np.zeros((2, length, 4), np.float32)
        np.testing.assert_array_equal(run(model, {"x": x})[0], np.arange(length))


def test_a_fixed_length_is_folded() -> None:
    model = model_of(LENGTHS.replace("B,S,4", "B,6,4"))
    assert clean(model)
    assert set(operators(model)) <= {"Identity", "Constant"}
    np.testing.assert_array_equal(run(model, {"x": np.zeros((2, 6, 4), np.float32)})[0], np.arange(6))


@pytest.mark.parametrize(("rows", "folds"), [(FOLD_LIMIT // 8, True), (FOLD_LIMIT // 8 + 1, False)])
def test_what_is_large_is_computed_at_load(rows: int, folds: bool) -> None:
    """A table of positions from two vectors would make the file larger."""
    model = model_of(f"""<ir_version: 10, opset_import: ["": 20]>
    g (float[B,{rows},8] x) => (float[B,{rows},8] y)
    <float[{rows},1] a = {{{",".join(["1"] * rows)}}}, float[1,8] b = {{1,2,3,4,5,6,7,8}}> {{
        table = Mul(a, b)
        y = Add(x, table)
    }}""")
    clean(model)
    assert ("Mul" not in operators(model)) == folds


def test_small_initializers_are_shared_and_those_the_caller_may_give_are_not(capfd: pytest.CaptureFixture[str]) -> None:
    model = model_of("""<ir_version: 10, opset_import: ["": 20]>
    g (float[B,2] x, float[2] given) => (float[B,2] y)
    <float[2] a = {1,2}, float[2] b = {1,2}, float[2] given = {1,2}> {
        p = Add(x, a)
        q = Mul(p, b)
        y = Add(q, given)
    }""")
    assert clean(model)
    assert capfd.readouterr() == ("", "")
    assert len(model.graph.initializers) == 2
    assert [value.name for value in model.graph.inputs] == ["x", "given"]
    feeds = {"x": np.ones((1, 2), np.float32), "given": np.array([5, 5], np.float32)}
    np.testing.assert_array_equal(run(model, feeds)[0], [[7, 11]])


def test_operators_that_no_schema_knows_stay() -> None:
    model = model_of("""<ir_version: 10, opset_import: ["": 20, "maskport": 1]>
    g (float[B,S] x) => (float[B,S] y) {
        one = maskport.Attention<mask="causal">(x)
        two = maskport.Attention<mask="full">(x)
        idle = maskport.Attention<mask="causal">(x)
        y = Add(one, two)
    }""")
    assert clean(model)
    assert operators(model) == ["Attention", "Attention", "Add"]
    assert model.opset_imports["maskport"] == 1


def test_outputs_that_are_twins_keep_both_names() -> None:
    model = model_of("""<ir_version: 10, opset_import: ["": 20]>
    g (float[B,S] x) => (float[B,S] y, float[B,S] z, float[B,S] w) { y = Neg(x) z = Neg(x) w = Identity(x) }""")
    clean(model)
    assert [value.name for value in model.graph.outputs] == ["y", "z", "w"]
    assert not clean(model)
    x = np.ones((1, 2), np.float32)
    for output, expected in zip(run(model, {"x": x}), (-x, -x, x), strict=True):
        np.testing.assert_array_equal(output, expected)
