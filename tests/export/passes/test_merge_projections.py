"""MergeProjectionsPass: products of one input become one, whose parts are what they were; all else stays."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from maskport.export.passes import MergeProjectionsPass
from onnx import numpy_helper

WIDTHS = {"a": 4, "b": 2, "c": 6}
# Three products that meet in a fourth, as query, key and value do.
MEET = "y = Concat<axis=-1>(ya, yb, yc)"


def model_of(
    body: str,
    x: str = "float[B,S,4] x",
    y: str = "float[M,N,O] y",
    *,
    dtype: type = np.float32,
    opset: int = 20,
    constants: dict[str, np.ndarray] | None = None,
) -> ir.Model:
    """Return a model with the weights wa, wb, wc [4, N], their transposes ta, tb, tc, and the biases ba, bb, bc [N]."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]>
        g ({x}) => ({y}) {{ {body} }}"""
    )
    rng = np.random.default_rng(0)
    arrays = dict(constants or {})
    for name, width in WIDTHS.items():
        weight = rng.standard_normal((4, width))
        arrays |= {f"w{name}": weight, f"t{name}": weight.T, f"b{name}": rng.standard_normal(width)}
    used = set(re.findall(r"\w+", body))
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.ascontiguousarray(array, dtype), name)
        for name, array in arrays.items()
        if name in used
    )
    return ir.from_proto(proto)


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph.all_nodes()]


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, feeds)]


PLAIN = "ya = MatMul(x, wa)\n yb = MatMul(x, wb)\n yc = MatMul(x, wc)\n"
BIASED = "ma = MatMul(x, wa)\n ya = Add(ma, ba)\n yb = MatMul(x, wb)\n mc = MatMul(x, wc)\n yc = Add(bc, mc)\n"
MERGED = {
    "products": (PLAIN + MEET, ["MatMul", "Split", "Concat"]),
    "some with a bias, on either side": (BIASED + MEET, ["MatMul", "Add", "Split", "Concat"]),
    "a bias of one is added to the product of another's": (
        "ma = MatMul(x, wa)\n yb = MatMul(x, wb)\n md = MatMul(x, wd)\n ya = Add(ma, md)\n y = Concat<axis=-1>(ya, yb)",
        ["MatMul", "Split", "Add", "Concat"],
    ),
    "they meet only after other nodes": (
        "ya = MatMul(x, wa)\n yb = MatMul(x, wb)\n sa = Sigmoid(ya)\n eb = Exp(yb)\n y = Concat<axis=-1>(sa, eb)",
        ["MatMul", "Split", "Sigmoid", "Exp", "Concat"],
    ),
    "one is used before the next is made": (
        "ya = MatMul(x, wa)\n sa = Sigmoid(ya)\n yb = MatMul(x, wb)\n y = Concat<axis=-1>(sa, yb, ya)",
        ["MatMul", "Split", "Sigmoid", "Concat"],
    ),
}


@pytest.mark.parametrize(("body", "expected"), MERGED.values(), ids=MERGED)
def test_products_of_one_input_become_one(body: str, expected: list[str]) -> None:
    model = model_of(body, constants={"wd": np.ones((4, 4))})
    before, weights = model.clone(), len(model.graph.initializers)
    result = MergeProjectionsPass()(model)
    assert result.modified
    assert operators(model) == expected
    assert len(model.graph.initializers) <= weights
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert not MergeProjectionsPass()(model).modified
    x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    for one, two in zip(run(before, {"x": x}), run(model, {"x": x}), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_packed_tokens_and_gemms() -> None:
    body = "ya = Gemm<transB=1>(x, ta, ba)\n yb = Gemm(x, wb)\n yc = Gemm<transB=1>(x, tc, bc)\n" + MEET
    model = model_of(body, "float[T,4] x", "float[T,O] y")
    before = model.clone()
    assert MergeProjectionsPass()(model).modified
    assert operators(model) == ["MatMul", "Add", "Split", "Concat"]
    x = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    np.testing.assert_allclose(run(before, {"x": x})[0], run(model, {"x": x})[0], atol=1e-6)
    # Of no tokens, too.
    assert run(model, {"x": x[:0]})[0].shape == (0, 12)


def test_values_keep_their_names_shapes_and_types_and_nodes_their_metadata() -> None:
    model = model_of(PLAIN + MEET, y="float[B,S,12] y")
    ir.passes.common.ShapeInferencePass()(model)
    for node in model.graph:
        node.metadata_props["scope"] = "layer"
    MergeProjectionsPass()(model)
    split = next(node for node in model.graph if node.op_type == "Split")
    assert [value.name for value in split.outputs] == ["ya", "yb", "yc"]
    assert [str(value.shape) for value in split.outputs] == ["[B,S,4]", "[B,S,2]", "[B,S,6]"]
    assert {value.dtype for value in split.outputs} == {ir.DataType.FLOAT}
    assert str(split.inputs[0].shape) == "[B,S,12]"
    assert {node.metadata_props.get("scope") for node in model.graph} == {"layer"}


def test_outputs_of_the_graph_may_be_parts() -> None:
    model = model_of(PLAIN + MEET, y="float[M,N,4] ya, float[M,N,O] y")
    before = model.clone()
    assert MergeProjectionsPass()(model).modified
    assert [value.name for value in model.graph.outputs] == ["ya", "y"]
    x = np.ones((1, 2, 4), np.float32)
    for one, two in zip(run(before, {"x": x}), run(model, {"x": x}), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_tied_weights_stay_and_shared_layers_share() -> None:
    """Two layers with the same weights, as ALBERT has, and a product of another input with one of them."""
    layer = "y{0}a = MatMul({1}, ws)\n y{0}b = MatMul({1}, wt)\n z{0} = Add(y{0}a, y{0}b)\n"
    model = model_of(
        layer.format(1, "x") + "h = Relu(z1)\n" + layer.format(2, "h") + "y = MatMul(z2, ws)",
        constants={"ws": np.eye(4), "wt": np.full((4, 4), 0.5)},
    )
    before = model.clone()
    assert MergeProjectionsPass()(model).modified
    assert operators(model).count("MatMul") == 3
    # ws for the last product; the merged weights and their widths, once.
    assert sorted(model.graph.initializers) == ["ws", "ws+wt", "ws+wt.widths"]
    x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(run(before, {"x": x})[0], run(model, {"x": x})[0], atol=1e-5)


def test_cross_attentions_of_different_layers_stay_apart() -> None:
    """Each layer's keys and values of one encoder's result are merged, those of two layers are not."""
    layer = (
        "k{0} = MatMul(x, wa)\n v{0} = MatMul(x, wv)\n p{0} = MatMul(k{0}, v{0})\n o{0} = MatMul(p{0}, ws)\n"
        " h{0} = Add(o{0}, {1})\n"
    )
    body = layer.format(1, "x") + layer.format(2, "h1") + "y = Identity(h2)"
    model = model_of(body, "float[B,4,4] x", constants={"wv": np.eye(4), "ws": np.eye(4)})
    assert MergeProjectionsPass()(model).modified
    splits = [node for node in model.graph if node.op_type == "Split"]
    assert [[value.name for value in split.outputs] for split in splits] == [["k1", "v1"], ["k2", "v2"]]


def test_gates_inside_a_branch_are_merged_there() -> None:
    body = """
    y = If (c) <
      then_branch = yes () => (float[M,N,O] t) { d = MatMul(x, wa) e = MatMul(x, wb) t = Concat<axis=-1>(d, e) },
      else_branch = no () => (float[M,N,O] u) { f = MatMul(x, wa) h = MatMul(x, wb) u = Concat<axis=-1>(h, f) }
    >"""
    model = model_of(body, "float[B,S,4] x, bool c")
    before = model.clone()
    assert MergeProjectionsPass()(model).modified
    assert operators(model).count("MatMul") == 2
    x = np.ones((1, 2, 4), np.float32)
    for c in (True, False):
        feeds = {"x": x, "c": np.array(c)}
        np.testing.assert_allclose(run(before, feeds)[0], run(model, feeds)[0], atol=1e-6)


NEAR_MISSES = {
    "one product": ("y = MatMul(x, wa)", {}),
    "inputs that differ": ("n = Neg(x)\n ya = MatMul(x, wa)\n yb = MatMul(n, wb)\n y = Concat<axis=-1>(ya, yb)", {}),
    "a product that nothing uses": ("y = MatMul(x, wa)\n yb = MatMul(x, wb)", {}),
    "results that never meet": (
        "ya = MatMul(x, wa)\n yb = MatMul(x, wb)\n y = Sigmoid(ya)\n z = Sigmoid(yb)",
        {"y": "float[M,N,O] y, float[M,N,P] z"},
    ),
    "results that meet behind the next projection": (
        "ya = MatMul(x, wa)\n za = MatMul(ya, ws)\n yb = MatMul(x, wb)\n y = Concat<axis=-1>(za, yb)",
        {"constants": {"ws": np.eye(4)}},
    ),
    "a weight that is computed": (
        "w = Add(wa, wa)\n ya = MatMul(x, w)\n yb = MatMul(x, wb)\n y = Concat<axis=-1>(ya, yb)",
        {},
    ),
    "a weight that the caller may give": (
        "ya = MatMul(x, w)\n yb = MatMul(x, wb)\n y = Concat<axis=-1>(ya, yb)",
        {"x": "float[B,S,4] x, float[4,4] w", "constants": {"w": np.eye(4)}},
    ),
    "a weight per row of the batch": (
        "ya = MatMul(x, w3)\n yb = MatMul(x, wb)\n y = Concat<axis=-1>(ya, yb)",
        {"constants": {"w3": np.ones((1, 4, 4))}},
    ),
    "another operator of that name": (
        "ya = com.microsoft.MatMul(x, wa)\n yb = com.microsoft.MatMul(x, wb)\n y = Concat<axis=-1>(ya, yb)",
        {},
    ),
    "a scaled Gemm": (
        "ya = Gemm<alpha=2.0>(x, wa)\n yb = Gemm(x, wb)\n y = Concat<axis=-1>(ya, yb)",
        {"x": "float[T,4] x", "y": "float[T,O] y"},
    ),
    "a Gemm of the transpose": (
        "ya = Gemm<transA=1>(x, wa)\n yb = Gemm(x, wb)\n y = Concat<axis=-1>(ya, yb)",
        {"x": "float[4,4] x", "y": "float[T,O] y"},
    ),
    "a Gemm whose bias differs by token": (
        "ya = Gemm(x, wa, bt)\n yb = Gemm(x, wb)\n y = Concat<axis=-1>(ya, yb)",
        {"x": "float[3,4] x", "y": "float[T,O] y", "constants": {"bt": np.ones((3, 1))}},
    ),
    "sizes of Split that are no input": (PLAIN + MEET, {"opset": 12}),
}


@pytest.mark.parametrize(("body", "arguments"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_all_else_stays(body: str, arguments: dict) -> None:
    model = model_of(body, **arguments)
    before = ir.to_proto(model).SerializeToString()
    assert not MergeProjectionsPass()(model).modified
    assert ir.to_proto(model).SerializeToString() == before


def test_an_added_value_that_is_no_bias_stays_an_addition() -> None:
    """What is added to the product has one value per token, or the product is used elsewhere as well."""
    body = (
        "ma = MatMul(x, wa)\n ya = Add(ma, x)\n mb = MatMul(x, wb)\n yb = Add(mb, bb)\n y = Concat<axis=-1>(ya, yb, mb)"
    )
    model = model_of(body)
    before = model.clone()
    assert MergeProjectionsPass()(model).modified
    assert operators(model) == ["MatMul", "Split", "Add", "Add", "Concat"]
    x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(run(before, {"x": x})[0], run(model, {"x": x})[0], atol=1e-6)


def test_what_a_third_brings_together_is_made_before_its_first_use() -> None:
    body = "ya = MatMul(x, wa)\n sa = Sigmoid(ya)\n yb = MatMul(x, wb)\n sb = Sigmoid(yb)\n yc = MatMul(x, wc)\n"
    body += "y = Concat<axis=-1>(sa, yc)\n z = Concat<axis=-1>(sb, yc)"
    model = model_of(body, y="float[M,N,O] y, float[M,N,P] z")
    before = model.clone()
    assert MergeProjectionsPass()(model).modified
    assert operators(model)[:2] == ["MatMul", "Split"]
    x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    for one, two in zip(run(before, {"x": x}), run(model, {"x": x}), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_half_weights_stay_half() -> None:
    model = model_of(BIASED + MEET, "float16[B,S,4] x", "float16[M,N,O] y", dtype=np.float16)
    assert MergeProjectionsPass()(model).modified
    merged = [value.dtype for name, value in model.graph.initializers.items() if not name.endswith("widths")]
    assert merged == [ir.DataType.FLOAT16, ir.DataType.FLOAT16]
