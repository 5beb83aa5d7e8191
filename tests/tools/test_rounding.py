"""Limits follow from what rounding does to the model at hand: measured in float64, else by its depth and width."""

from __future__ import annotations

import math

import numpy as np
import onnx.parser
import pytest
import torch
from maskport.export import export
from maskport.export.cases.parity import tolerance_of
from maskport.runtime import Session
from maskport.tools import validate
from maskport.tools.parity.in_float64 import in_float64
from maskport.tools.parity.metrics import metrics_of
from maskport.tools.parity.rounding import MEASURED, MODEL, MOST, Depth, Rounding
from torch import nn

from .attention_graphs import FAR, attention
from .tiny_models import tiny

THREE = Depth(3, 64)
AXES = {0: "batch", 1: "seq"}


def graph(body: str) -> bytes:
    text = f'<ir_version: 10, opset_import: ["" : 20]> g (float[batch, seq, 4] x) => (float[batch, seq, 4] y) {body}'
    return onnx.parser.parse_model(text).SerializeToString()


def test_depth_is_the_longest_way_and_width_the_longest_sum() -> None:
    assert Depth.of(graph("{ y = Neg (x) }")) == Depth(0, 1)
    weights = "<float[4, 7] w = {" + ", ".join(["1"] * 28) + "}>"
    body = f"{weights} {{ a = MatMul (x, w) b = Softmax (a) c = Transpose <perm = [0, 2, 1]> (b) d = MatMul (b, c)"
    body += " e = Tanh (x) f = ReduceSum (d) y = Add (e, f) }"
    assert Depth.of(graph(body)) == Depth(4, 4)


def test_what_is_asked_for_goes_before_all_and_an_output_before_its_type() -> None:
    rounding = Rounding(THREE, {"float32": 1e-3, "y": 1e-2})
    rounding.measured("y", 1e-7)
    assert rounding.tolerance("y", "float32").value == 1e-2
    assert rounding.tolerance("z", "float32").value == 1e-3


def test_without_a_graph_or_for_integers_limits_are_those_of_the_type() -> None:
    assert Rounding(None, {}).tolerance("y", "float32") == tolerance_of("float32")
    assert Rounding(THREE, {}).tolerance("y", "int64").value == 0
    assert Rounding(THREE, {}).tolerance("y", "float64") == tolerance_of("float64")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_model_grows_with_the_root_of_depth_and_by_type(dtype: str) -> None:
    shallow, deep = (Rounding(Depth(steps, 64), {}).tolerance("y", dtype).value for steps in (4, 16))
    assert deep == pytest.approx(2 * shallow)
    assert Rounding(Depth(4, 64), {}).tolerance("y", "float32").value <= shallow


def test_a_measured_error_sets_the_limit_within_what_rounding_can_do() -> None:
    one = THREE.rounding("float32")
    assert one is not None
    for error, wanted in ((0.0, one), (2 * one, MEASURED * 2 * one), (0.3, MOST * max(MODEL * one, 5e-5))):
        rounding = Rounding(THREE, {})
        rounding.measured("y", error)
        assert rounding.tolerance("y", "float32").value == pytest.approx(wanted)
        assert (rounding.beyond("y", "float32") is not None) == (error == 0.3)
    rounding.measured("z", math.inf)
    assert rounding.tolerance("z", "float32").value == pytest.approx(MODEL * one)


def test_metrics_are_those_of_the_definition() -> None:
    expected = np.array([[1.0, 0.0, 4.0], [0.0, 0.0, 0.0]], np.float32)
    actual = np.array([[1.0, 0.0, 4.0 + 2.0**-20], [0.0, 0.0, 0.0]], np.float32)
    found = metrics_of(actual, expected, np.ones_like(expected, bool))
    assert found is not None
    # Of numbers from 4 to 8 the last place is 2**-21.
    assert found.ulp == 2
    assert found.max_rel == 2.0**-22
    assert found.cosine == pytest.approx(1)
    same = metrics_of(expected, expected, np.ones_like(expected, bool))
    assert same == (0.0, 1.0, 0.0)
    opposite = metrics_of(-expected, expected, np.ones_like(expected, bool))
    assert opposite is not None
    assert opposite.cosine == pytest.approx(-1)
    assert metrics_of(actual, expected, np.zeros_like(expected, bool)) is None
    assert metrics_of(np.full_like(actual, np.nan), expected, np.ones_like(expected, bool)) is None


def test_a_file_in_float64_is_close_to_itself_and_not_the_same() -> None:
    for model in (tiny(), attention(FAR).SerializeToString()):
        session = Session(model, device="cpu")
        rng = np.random.default_rng(0)
        inputs = {
            one.name: np.ones((2, 7), np.int64)
            if one.name.endswith("mask")
            else rng.random((2, 7, one.shape[2]), np.float32)
            for one in session.inputs
        }
        run = in_float64(model)
        assert run is not None
        for name, array in run(inputs).items():
            single = session.run(inputs)[name]
            assert array.dtype == np.float64
            assert 0 < np.abs(array - single).max() < 1e-6


BUCKETS = """
<int64 zero = {0}, int64 one = {1}, int64[1] first = {1}, float eight = {8}, float most = {2.7725887}, float[64] table>
{ shape = Shape (x)
  sizes = Gather (shape, first)
  size = Squeeze (sizes)
  places = Range (zero, size, one)
  distances = Cast <to = 1> (places)
  part = Div (distances, eight)
  log = Log (part)
  scaled = Div (log, most)
  steps = Mul (scaled, eight)
  low = Max (steps, low_one)
  bucket = Cast <to = 7> (low)
  bias = Gather (table, bucket)
  ends = Unsqueeze (bias, first)
  y = Add (x, ends) }"""


def test_buckets_of_distances_stay_the_same_in_float64() -> None:
    body = BUCKETS.replace(
        "float[64] table", "float low_one = {0}, float[32] table = {" + ", ".join(map(str, range(32))) + "}"
    )
    model = graph(body)
    x = np.zeros((1, 33, 4), np.float32)
    run = in_float64(model)
    assert run is not None
    single = Session(model, device="cpu").run({"x": x})["y"]
    assert len(np.unique(single)) > 3
    assert np.array_equal(run({"x": x})["y"], single)


def test_a_module_that_chooses_by_rounding_is_told() -> None:
    class Chooses(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            # 1 in float32, 0 in float64: a choice, as an argmax is.
            return (x + (x * 0 + 1e8 + 1 - 1e8 != 1).to(x.dtype)).clone()

    inputs = (torch.randn(2, 5, 4),)
    file = export(Chooses(), inputs, dynamic_shapes={"x": AXES}).serialize()
    verdict = validate(file, Chooses(), inputs)
    found = {contract.name: contract for contract in verdict.contracts}
    assert found["rounding/output"].status == "not run"
    assert "of the largest value from its own run in float64" in str(found["rounding/output"].why)


def test_a_small_fault_that_a_limit_per_type_lets_through_is_seen() -> None:
    class Scaled(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear, self.scale = nn.Linear(16, 16), scale

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * self.scale

    inputs = (torch.randn(2, 5, 16),)
    file = export(Scaled(1.00002), inputs, dynamic_shapes={"x": AXES}).serialize()
    assert not validate(file, Scaled(1.0), inputs).ok
    assert validate(file, Scaled(1.0), inputs, tolerances={"float32": 5e-5}).ok
    assert validate(file, Scaled(1.00002), inputs).ok
