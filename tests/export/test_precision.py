"""to_precision: activations and weights are half, numbers and norms stay exact, masks mean what they meant."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from maskport.export.cases.patterns import padding_patterns
from maskport.export.precision import to_precision
from maskport.export.twins.evaluate import evaluate
from onnx import numpy_helper
from onnx_ir.passes import common

from ..zoo.models import Zoo
from .symbolic.attention_text import HEADS, SIZE, attention

FLOAT, HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16


def model_of(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(text))


def graph_of(body: str, x: str, y: str, arrays: dict[str, np.ndarray] | None = None, opset: int = 20) -> ir.Model:
    """Return a model whose constants are arrays."""
    head = f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1, "maskport": 1]>'
    proto = onnx.parser.parse_model(f"{head} g ({x}) => ({y}) {{ {body} }}")
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (arrays or {}).items())
    return ir.from_proto(proto)


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run a model on the CPU, with floats in the types that it takes."""
    types = {value.name: value.dtype.numpy() for value in model.graph.inputs if value.dtype is not None}
    options = ort.SessionOptions()
    options.log_severity_level = 3
    data = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    given = {name: array.astype(types[name]) for name, array in feeds.items()}
    return [np.asarray(output).astype(np.float32) for output in session.run(None, given)]


def kinds(model: ir.Model) -> dict[str, set[str]]:
    """Return the operators whose results are float32, and those whose are half."""
    found: dict[str, set[str]] = {"float32": set(), "half": set()}
    for node in model.graph.all_nodes():
        for value in node.outputs:
            if value.dtype in (FLOAT, HALF, ir.DataType.BFLOAT16):
                found["float32" if value.dtype == FLOAT else "half"].add(node.op_type)
    return found


RNG = np.random.default_rng(0)
W = RNG.standard_normal((8, 4)).astype(np.float32)
LAYER = "h = MatMul(x, w)\n b = Add(h, bias)\n y = Relu(b)"


def layer() -> ir.Model:
    arrays = {"w": W, "bias": np.ones(4, np.float32)}
    return graph_of(LAYER, "float[B,S,8] x, int64[B,S] ids", "float[B,S,4] y", arrays)


@pytest.mark.parametrize(("name", "dtype"), [("float16", HALF), ("bfloat16", ir.DataType.BFLOAT16)])
def test_weights_activations_inputs_and_outputs_are_half(name: str, dtype: ir.DataType) -> None:
    model = layer()
    model.metadata_props["maskport.io"] = "{}"
    for node in model.graph:
        node.metadata_props["scope"] = "layer"
    before = ir.to_proto(model).SerializeToString()
    half = to_precision(model, name)
    assert ir.to_proto(model).SerializeToString() == before
    onnx.checker.check_model(ir.to_proto(half), full_check=True)
    assert [(value.name, value.dtype) for value in half.graph.inputs] == [("x", dtype), ("ids", ir.DataType.INT64)]
    assert [(value.name, value.dtype, str(value.shape)) for value in half.graph.outputs] == [("y", dtype, "[B,S,4]")]
    assert {value.dtype for value in half.graph.initializers.values()} == {dtype}
    assert [node.op_type for node in half.graph] == ["MatMul", "Add", "Relu"]
    assert half.metadata_props == {"maskport.io": "{}"}
    assert all(node.metadata_props == {"scope": "layer"} for node in half.graph)


def test_what_has_no_float32_is_itself() -> None:
    model = graph_of("y = Add(x, x)", "int64[B] x", "int64[B] y")
    assert to_precision(model, "float16") is model
    half = to_precision(layer(), "float16")
    assert to_precision(half, "float16") is half


def test_a_converted_model_with_numbers_stays_as_it_is() -> None:
    half = to_precision(angles(), "float16")
    again = to_precision(half, "float16")
    assert [(node.op_type, *(v.dtype for v in node.outputs)) for node in again.graph] == [
        (node.op_type, *(v.dtype for v in node.outputs)) for node in half.graph
    ]


def test_other_types_and_functions_are_refused() -> None:
    with pytest.raises(ValueError, match="'float8'; give one of float16, bfloat16"):
        to_precision(layer(), "float8")
    with pytest.raises(ValueError, match="inline them first"):
        to_precision(
            model_of(
                """<ir_version: 10, opset_import: ["": 20, "local": 1]> g (float[N] x) => (float[N] y) {
                y = local.twice(x) } <domain: "local", opset_import: ["": 20]> twice (x) => (y) { y = Add(x, x) }"""
            ),
            "float16",
        )


def angles() -> ir.Model:
    """Rotary angles of positions, as Llama computes them, on activations."""
    body = """
    p = Cast<to=1>(positions)
    a = Constant<value_ints=[2]>()
    c = Unsqueeze(p, a)
    angle = Mul(c, frequencies)
    cos = Cos(angle)
    y = Mul(x, cos)"""
    frequencies = {"frequencies": (1.0 / 10000 ** (np.arange(4) / 4)).astype(np.float32)}
    return graph_of(body, "float[B,S,4] x, int64[B,S] positions", "float[B,S,4] y", frequencies)


@pytest.mark.parametrize("start", [0, 2049, 100_001])
def test_positions_are_exact(start: int) -> None:
    """Above 2048, every second position is none in float16."""
    feeds = {"x": np.ones((1, 6, 4), np.float32), "positions": start + np.arange(6)[None]}
    half = to_precision(angles(), "float16")
    np.testing.assert_allclose(run(half, feeds)[0], run(angles(), feeds)[0], atol=1e-3)
    assert kinds(half) == {"float32": {"Cast", "Unsqueeze", "Mul", "Cos"}, "half": {"Cast", "Mul"}}


MASKS = {
    "-1e9": "f = Constant<value_float=-1e9>()",
    "the lowest float32": "f = Constant<value_float=-3.4028235e38>()",
    "-65504": "f = Constant<value_float=-65504.0>()",
    "-1e4": "f = Constant<value_float=-10000.0>()",
}
MULTIPLIED = """
  {fill}
  cast = Cast<to=1>(m)
  off = Sub(f1, cast)
  key_mask = Unsqueeze(off, key_axes)
  added = Mul(key_mask, f)
  {causal}
  masked = Add({scores}, added)
"""
CAUSAL = """
  after = Greater(keys, queries)
  triangle = Where(after, f, f0)
  once = Add(s, triangle)
"""


@pytest.mark.parametrize("causal", [False, True], ids=["padding", "causal and padding"])
@pytest.mark.parametrize("fill", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("scale", [1.0, 30.0], ids=["scores", "large scores"])
def test_multiplied_fills_mask_as_in_float32(fill: str, causal: bool, scale: float) -> None:
    """The recipe ``S + M * fill``: 0 * -inf would be NaN everywhere, and -1e9 is -inf in float16."""
    body = MULTIPLIED.format(fill=fill, causal=CAUSAL if causal else "", scores="once" if causal else "s")
    model = ir.from_proto(attention(body))
    half = to_precision(model, "float16")
    onnx.checker.check_model(ir.to_proto(half), full_check=True)
    rng = np.random.default_rng(1)
    for keep in padding_patterns(3, 7, rng).values():
        q, k, v = (rng.standard_normal((3, HEADS, 7, SIZE)).astype(np.float32) for _ in range(3))
        feeds = {"q": q * scale, "k": k, "v": v, "m": keep.astype(np.int64)}
        actual, expected = run(half, feeds)[0], run(model, feeds)[0]
        # Rows without a key are finite, too.
        assert np.isfinite(actual).all()
        allowed = keep[:, None, :] & (np.tri(7, dtype=bool) if causal else True)
        valid = np.broadcast_to(allowed.any(-1)[:, None], actual.shape[:3])
        # A score of a hundred is rounded to sixteenths, which moves a weight by as much.
        assert np.abs(actual - expected)[valid].max(initial=0) < (0.01 if scale == 1 else 0.3)
        hidden = {**feeds, "v": np.where(keep[:, None, :, None], v, 1000.0)}
        np.testing.assert_array_equal(run(half, hidden)[0][valid], actual[valid])


@pytest.mark.parametrize("after", ["y = MatMul(w, v)", "n = IsNaN(w)\n z = Where(n, f0, w)\n y = MatMul(z, v)"])
def test_an_infinite_fill_stays_one(after: str) -> None:
    """A row without keys is NaN, or zero behind a guard, as it was."""
    body = "b = Cast<to=9>(m)\n c = Unsqueeze(b, key_axes)\n added = Where(c, f0, inf)\n masked = Add(s, added)"
    model = ir.from_proto(attention(body, after=after))
    half = to_precision(model, "float16")
    rng = np.random.default_rng(1)
    for keep in padding_patterns(3, 7, rng).values():
        q, k, v = (rng.standard_normal((3, HEADS, 7, SIZE)).astype(np.float32) for _ in range(3))
        feeds = {"q": q, "k": k, "v": v, "m": keep.astype(np.int64)}
        np.testing.assert_allclose(run(half, feeds)[0], run(model, feeds)[0], atol=0.01)


def test_a_float_mask_of_the_caller_masks_too() -> None:
    body = MULTIPLIED.format(fill=MASKS["-1e9"], causal="", scores="s").replace(
        "cast = Cast<to=1>(m)", "cast = Identity(m)"
    )
    model = ir.from_proto(attention(body, "float[B,S] m"))
    half = to_precision(model, "float16")
    rng = np.random.default_rng(1)
    for keep in padding_patterns(3, 7, rng).values():
        q, k, v = (rng.standard_normal((3, HEADS, 7, SIZE)).astype(np.float32) for _ in range(3))
        feeds = {"q": q, "k": k, "v": v, "m": keep.astype(np.float32)}
        actual, expected = run(half, feeds)[0], run(model, feeds)[0]
        assert np.isfinite(actual).all()
        rows = keep.any(-1)
        assert np.abs(actual - expected)[rows].max(initial=0) < 0.01


NORMS = {
    "by Reciprocal": "r = Reciprocal(d)\n n = Mul(x, r)",
    "by Div": "n = Div(x, d)",
}


@pytest.mark.parametrize("square", ["p = Pow(x, two)", "p = Mul(x, x)"])
@pytest.mark.parametrize("scaled", NORMS.values(), ids=NORMS)
def test_norms_keep_their_epsilon_and_their_squares(square: str, scaled: str) -> None:
    """300 squared overflows; 1e-12 is zero in float16, and its inverse root is infinite."""
    body = f"""
    two = Constant<value_float=2.0>()
    epsilon = Constant<value_float=1e-12>()
    axes = Constant<value_ints=[-1]>()
    {square}
    m = ReduceMean(p, axes)
    e = Add(m, epsilon)
    d = Sqrt(e)
    {scaled}
    g = Mul(n, gain)
    y = MatMul(g, w)"""
    model = graph_of(body, "float[B,S,8] x", "float[B,S,4] y", {"gain": np.ones(8, np.float32), "w": W})
    half = to_precision(model, "float16")
    x = RNG.standard_normal((2, 3, 8)).astype(np.float16).astype(np.float32)
    for size in (0.0, 0.01, 1.0, 300.0):
        np.testing.assert_allclose(run(half, {"x": size * x})[0], run(model, {"x": size * x})[0], atol=0.02)
    assert "MatMul" in kinds(half)["half"]


def test_a_constant_is_in_each_use_what_it_needs() -> None:
    """A number for an angle, and a factor of activations."""
    body = "p = Cast<to=1>(ids)\n a = Mul(p, tenth)\n c = Sin(a)\n s = Mul(x, tenth)\n y = Add(s, c)"
    model = graph_of(body, "float[B,S] x, int64[B,S] ids", "float[B,S] y", {"tenth": np.float32([0.1])})
    half = to_precision(model, "float16")
    assert {(name, value.dtype) for name, value in half.graph.initializers.items()} == {
        ("tenth", FLOAT),
        ("tenth.float16", HALF),
    }
    feeds = {"x": np.ones((1, 3), np.float32), "ids": np.array([[0, 3001, 9999]])}
    np.testing.assert_allclose(run(half, feeds)[0], run(model, feeds)[0], atol=2e-3)


def test_branches_and_loops_are_converted_with_the_rest() -> None:
    body = """
    y = If (c) <
        then_branch = yes () => (float[M,N] t) { t = MatMul(x, w) },
        else_branch = no () => (float[M,N] e) { p = Cast<to=1>(ids) i = Cos(p) h = MatMul(x, w) e = Mul(h, i) }
    >
    n = Constant<value_int=3>()
    z = Loop (n, , x) <
        body = step (int64 i, bool go, float[A,8] before) => (bool on, float[A,8] after) {
            on = Identity(go)
            j = Cast<to=1>(i)
            after = Add(before, j)
        }
    >"""
    model = graph_of(body, "float[S,8] x, int64[S,1] ids, bool c", "float[M,N] y, float[P,8] z", {"w": W})
    half = to_precision(model, "float16")
    onnx.checker.check_model(ir.to_proto(half), full_check=True)
    feeds = {"x": RNG.standard_normal((2, 8)).astype(np.float32), "ids": np.array([[0], [5001]])}
    for c in (True, False):
        for one, two in zip(
            run(half, {**feeds, "c": np.array(c)}), run(model, {**feeds, "c": np.array(c)}), strict=True
        ):
            np.testing.assert_allclose(one, two, atol=0.02)


def test_outputs_that_are_numbers_are_half_under_their_names() -> None:
    body = "n = Cast<to=1>(m)\n a = Constant<value_ints=[-1]>()\n"
    body += "tokens = ReduceSum<keepdims=0>(n, a)\n y = Div(x, tokens)"
    model = graph_of(body, "float[B] x, int64[B,S] m", "float[B] y, float[B] tokens")
    half = to_precision(model, "float16")
    assert [(value.name, value.dtype) for value in half.graph.outputs] == [("y", HALF), ("tokens", HALF)]
    feeds = {"x": np.float32([6, 8]), "m": np.array([[1, 1, 1], [1, 0, 0]])}
    np.testing.assert_allclose(run(half, feeds)[0], [2, 8])
    np.testing.assert_allclose(run(half, feeds)[1], [3, 1])


def test_operators_of_other_domains_are_converted() -> None:
    model = graph_of(
        "b = Cast<to=6>(m)\n h = com.microsoft.FastGelu(x, bias)\n a = maskport.Attention<mask='full'>(h, h, h, t)\n"
        " y = com.microsoft.MultiHeadAttention<num_heads=2>(a, a, a, , b)".replace("'", '"'),
        "float[B,S,8] x, int64[B,S] m",
        "float[B,S,8] y",
        {"bias": np.ones(8, np.float32), "t": np.zeros((1, 1, 4, 4), np.float32)},
    )
    half = to_precision(model, "float16")
    assert kinds(half) == {"float32": set(), "half": {"FastGelu", "Attention", "MultiHeadAttention"}}
    assert {value.dtype for value in half.graph.initializers.values()} == {HALF}


def test_types_are_found_behind_operators_that_no_inference_knows() -> None:
    body = "h = com.microsoft.FastGelu(x)\n p = MatMul(h, w)\n c = Greater(p, p)\n y = Where(c, x, p)"
    model = graph_of(body, "float[B,4] x", "float[B,4] y", {"w": np.eye(4, dtype=np.float32)})
    half = to_precision(model, "float16")
    assert [node.outputs[0].dtype for node in half.graph] == [HALF, HALF, ir.DataType.BOOL, HALF]
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_allclose(run(half, {"x": x})[0], run(model, {"x": x})[0], atol=0.01)


def test_what_gives_half_precision_already_does_so_still() -> None:
    # A power may have a float32 exponent, and the statistics of a norm are float32, in a model of half precision.
    body = "p = Pow(x, three)\n y, m = LayerNormalization<axis = -1>(p, w)"
    arrays = {"three": np.float32(3), "w": np.ones(4, np.float16)}
    model = graph_of(body, "float16[B,4] x", "float16[B,4] y", arrays)
    common.ShapeInferencePass()(model)
    feeds = {"x": RNG.standard_normal((3, 4))}
    before = run(model, feeds)
    converted = to_precision(model, "float16")
    assert kinds(converted)["half"] >= {"Pow", "LayerNormalization"}
    np.testing.assert_allclose(run(converted, feeds)[0], before[0], atol=4e-3)


@pytest.mark.parametrize("norm", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_statistics_of_a_norm_with_a_sum_stay_float32(norm: str) -> None:
    body = f"y, m, i, t = com.microsoft.{norm}<epsilon = 0.001>(x, x, w)\n z = Relu(t)"
    model = graph_of(body, "float[B,S,4] x", "float[B,S,4] y, float[B,S,4] z", {"w": np.ones(4, np.float32)})
    for value in model.graph[0].outputs:
        value.type = ir.TensorType(FLOAT)
    converted = to_precision(model, "float16")
    assert [value.dtype for value in converted.graph[0].outputs] == [HALF, FLOAT, FLOAT, HALF]
    run(converted, {"x": RNG.standard_normal((2, 3, 4))})


def test_quantized_operators_keep_float32() -> None:
    body = "q, s, z = DynamicQuantizeLinear(x)\n d = DequantizeLinear(q, s, z)\n y = MatMul(d, w)"
    model = graph_of(body, "float[B,8] x", "float[B,4] y", {"w": W})
    half = to_precision(model, "float16")
    onnx.checker.check_model(ir.to_proto(half), full_check=True)
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_allclose(run(half, {"x": x})[0], run(model, {"x": x})[0], atol=0.05)


def test_weights_beside_the_file_are_read(tmp_path) -> None:
    ir.save(layer(), tmp_path / "m.onnx", external_data="m.data", size_threshold_bytes=0)
    half = to_precision(ir.load(tmp_path / "m.onnx"), "float16")
    x = {"x": RNG.standard_normal((1, 2, 8)).astype(np.float32), "ids": np.zeros((1, 2), np.int64)}
    np.testing.assert_allclose(run(half, x)[0], run(layer(), x)[0], atol=0.01)


def feeds_of(inputs: dict[str, torch.Tensor], keep: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    feeds = {}
    for name, value in inputs.items():
        if "mask" in name:
            feeds[name] = keep.astype(np.int64)
        elif isinstance(value, torch.Tensor):
            feeds[name] = rng.integers(0, max(2, int(value.max()) + 1), keep.shape)
    return feeds


# Of the kinds of arithmetic that half precision ruins: buckets, rotary angles and norms, additive masks, softcaps.
@pytest.mark.parametrize("opset", [None, 23])
@pytest.mark.parametrize("name", ["mpnet", "t5", "llama", "bert", "gemma2", "deberta"])
def test_the_zoo_in_float16_is_itself_on_valid_rows(zoo: Zoo, name: str, opset: int | None) -> None:
    model = ir.load(zoo(name, opset).path)
    common.InlinePass()(model)
    half = to_precision(model, "float16")
    onnx.checker.check_model(ir.to_proto(half), full_check=True)
    inputs = zoo(name, opset).loaded.example_inputs
    for keep in padding_patterns(3, 33, np.random.default_rng(0)).values():
        feeds = feeds_of(inputs, keep)
        for one, two in zip(run(half, feeds), run(model, feeds), strict=True):
            assert np.isfinite(one[np.isfinite(two)]).all()
            if two.shape[:2] == keep.shape:
                rows = keep if name not in ("llama", "gemma2") else keep & (np.cumsum(keep, 1) > 0)
                limit = 0.02 * max(1.0, float(np.abs(two[rows]).max(initial=0)))
                assert np.abs(one - two)[rows].max(initial=0) < limit


@pytest.mark.parametrize("name", ["mpnet", "llama"])
def test_the_zoo_in_bfloat16_by_the_reference(zoo: Zoo, name: str) -> None:
    """ONNX Runtime's CPU has no bfloat16."""
    model = ir.load(zoo(name).path)
    common.InlinePass()(model)
    half = to_precision(model, "bfloat16")
    onnx.checker.check_model(ir.to_proto(half), full_check=True)
    keep = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], bool)
    feeds = feeds_of(zoo(name).loaded.example_inputs, keep)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = evaluate(ir.to_proto(half), feeds)
    results = list(results.values())
    expected = run(model, feeds)[0]
    assert results[0].dtype == ml_dtypes.bfloat16
    limit = 0.1 * np.abs(expected[keep]).max()
    assert np.abs(results[0].astype(np.float32) - expected)[keep].max() < limit


def test_sequences_are_half_even_where_they_begin_with_a_constant() -> None:
    body = "none = SequenceConstruct (start) all = SequenceInsert (none, x) y = ConcatFromSequence <axis = 1> (all)"
    source = graph_of(
        body, "float[batch, seq, 4] x", "float[batch, all, 4] y", {"start": np.zeros((3, 0, 4), np.float32)}
    )
    for node in list(source.graph)[:2]:
        # Shape inference takes sequences for tensors.
        node.outputs[0].type = ir.SequenceType(ir.TensorType(FLOAT))
    converted = to_precision(source, "float16")
    assert kinds(converted)["float32"] == set()
    x = RNG.standard_normal((3, 5, 4))
    assert np.array_equal(run(converted, {"x": x})[0], x.astype(np.float16))
