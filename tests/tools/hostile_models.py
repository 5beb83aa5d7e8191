"""Models that no validation may take for right, and that none may die of."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import TensorProto, helper

from .child.models import AT_LOAD, BOUNDLESS, ENDLESS, SEGFAULT, crashes_at, model

ROWS = "float[batch, seq, 4]"
SCALED = f"g ({ROWS} x) => ({ROWS} y) <float[4] w = {{1, 1, 1, 1}}> {{ y = Mul (x, w) }}"
TEXTS = {
    "no inputs": "g () => (float[2] y) <float[2] c = {1, 2}> { y = Identity (c) }",
    "inputs without axes": "g (float a, float b) => (float y) { y = Add (a, b) }",
    "text": "g (string[batch, seq] x) => (string[batch, seq] y) { y = Identity (x) }",
    "a sequence": "g (seq(float[n, 4]) x) => (float[n, 4] y) <int64 first = {0}> { y = SequenceAt (x, first) }",
    "a sequence comes out": f"g ({ROWS} x) => (seq({ROWS}) y) {{ y = SequenceConstruct (x, x) }}",
    "an optional": f"g (optional({ROWS}) x) => ({ROWS} y) {{ y = OptionalGetElement (x) }}",
    "an axis of no length": "g (float[batch, 0, 4] x) => (float[batch, 0, 4] y) { y = Identity (x) }",
    "outputs of no length": f"""g ({ROWS} x) => (float[batch, none, 4] y)
        <int64[1] zero = {{0}}, int64[1] axis = {{1}}> {{ y = Slice (x, zero, zero, axis) }}""",
    "branches of other ranks": f"""g ({ROWS} x, bool[1] which) => (y)
        {{ y = If (which) <then_branch = t () => (a) {{ a = Identity (x) }},
                           else_branch = e () => (b) {{ b = ReduceSum <keepdims = 0> (x) }}> }}""",
    "a rank that depends on numbers": f"""g ({ROWS} x, int64[n] shape) => (y) {{ y = Reshape (x, shape) }}""",
    "two gigabytes": "g (float[1, 536870912] x) => (float[1, 536870912] y) { y = Neg (x) }",
    "two gigabytes a row": "g (float[batch, 536870912] x) => (float[batch, 536870912] y) { y = Neg (x) }",
    "an operator that nobody has": f"g ({ROWS} x) => ({ROWS} y) {{ y = nobody.Nothing (x) }}",
    "an input that is named twice": f"g ({ROWS} x, {ROWS} x) => ({ROWS} y) {{ y = Neg (x) }}",
    "a value that is computed twice": f"g ({ROWS} x) => ({ROWS} y) {{ y = Neg (x) y = Abs (x) }}",
    "an output that nobody computes": f"g ({ROWS} x) => ({ROWS} y) {{ z = Neg (x) }}",
    "an operator that the processor lacks": """g (float16[batch, seq, 4] x) => (float16[batch, seq, 4] y)
        { y = com.microsoft.LongformerAttention (x, x, x, x, x, x, x) }""",
    "random numbers": f"g ({ROWS} x) => ({ROWS} y) {{ n = RandomNormalLike (x) y = Add (x, n) }}",
    "crash": SEGFAULT,
    "crash when it is loaded": AT_LOAD,
    "hang": ENDLESS,
    "memory": BOUNDLESS,
}


def _not_a_number() -> bytes:
    read = onnx.load_from_string(model(SCALED))
    read.graph.initializer[0].CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [4], [float("nan")] * 4))
    return read.SerializeToString()


def _without_rank() -> bytes:
    read = onnx.load_from_string(model(f"g ({ROWS} x) => ({ROWS} y) {{ y = Neg (x) }}"))
    for value in (*read.graph.input, *read.graph.output):
        value.type.tensor_type.ClearField("shape")
    return read.SerializeToString()


def _a_map() -> bytes:
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])
    numbers = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])
    kept = helper.make_tensor_type_proto(TensorProto.FLOAT, ())
    told = helper.make_value_info(
        "y", helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, kept))
    )
    graph = helper.make_graph([node], "g", [numbers], [told])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def _data_elsewhere() -> bytes:
    read = onnx.load_from_string(model(SCALED))
    weight = read.graph.initializer[0]
    weight.ClearField("float_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "gone.data"), ("offset", "0"), ("length", "16")):
        weight.external_data.add(key=key, value=value)
    return read.SerializeToString()


MADE: dict[str, Callable[[], bytes]] = {
    "weights that are no numbers": _not_a_number,
    "no rank": _without_rank,
    "a map": _a_map,
    "data that is missing": _data_elsewhere,
    "crash at one length": lambda: crashes_at(17),
}


def made(name: str) -> bytes:
    """Return a model by its name."""
    return MADE[name]() if name in MADE else model(TEXTS[name])


NAMES = (*TEXTS, *MADE)
