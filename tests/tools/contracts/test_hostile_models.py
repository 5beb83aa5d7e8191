"""Models that show nothing are no pass, and what no contract holds for is said plainly."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from maskport.tools import validate
from maskport.tools.contracts import contracts_of

HEAD = '<ir_version: 10, opset_import: ["" : 20]>\n'
SHOWS_NOTHING = {
    "no inputs": "g () => (float[2] y) <float[2] c = {1, 2}> { y = Identity (c) }",
    "sizes that are fixed": "g (float[2, 5, 4] x) => (float[2, 5, 4] y) { y = Identity (x) }",
    "no tokens": "g (float[batch, 4] x) => (float[batch, 4] y) { y = Identity (x) }",
    "a sequence": "g (seq(float[2]) x) => (float[2] y) <int64 first = {0}> { y = SequenceAt (x, first) }",
    "text": "g (string[batch, seq] x) => (string[batch, seq] y) { y = Identity (x) }",
}
SHOWS = {
    "a scalar beside tokens": "g (float a, float[batch, seq, 4] x) => (float[batch, seq, 4] y) { y = Mul (x, a) }",
    "whole numbers alone": "g (int64[batch, seq] input_ids) => (int64[batch, seq] y) { y = Identity (input_ids) }",
    "several outputs": """g (float[batch, seq, 4] x) => (float[batch, seq, 4] y, float[batch, 4] mean, int64[2] n)
        <int64[1] axis = {1}>
        { y = Identity (x)
          mean = ReduceMean <keepdims = 0> (x, axis)
          n = Constant <value_ints = [1, 2]> () }""",
}
BREAKS = {
    "repeatable": "g (float[batch, seq, 4] x) => (float[batch, seq, 4] y) { n = RandomNormalLike (x) y = Add (x, n) }",
    "batch-invariance": """g (float[batch, seq, 4] x) => (float[batch, seq, 4] y) <int64[1] axis = {0}>
        { m = ReduceMean (x, axis) y = Add (x, m) }""",
    "input-matters/attention_mask": """
        g (float[batch, seq, 4] x, int64[batch, seq] attention_mask) => (float[batch, seq, 4] y)
        { y = Identity (x) }""",
}


def bytes_of(text: str) -> bytes:
    return onnx.parser.parse_model(HEAD + text).SerializeToString()


@pytest.mark.parametrize("name", SHOWS_NOTHING)
def test_a_model_that_shows_nothing_is_no_pass(name: str) -> None:
    verdict = contracts_of(bytes_of(SHOWS_NOTHING[name]))
    assert not verdict.ok
    assert verdict.failures == ()


def test_a_model_whose_input_has_no_rank_is_no_pass() -> None:
    model = onnx.load_from_string(bytes_of("g (float[2] x) => (float[2] y) { y = Identity (x) }"))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    verdict = contracts_of(model.SerializeToString())
    assert not verdict.ok
    assert "has no declared rank" in str(verdict.contracts[0].why)


@pytest.mark.parametrize("name", SHOWS)
def test_a_model_without_attention_that_mixes_nothing_raises_no_alarm(name: str) -> None:
    verdict = contracts_of(bytes_of(SHOWS[name]))
    assert verdict.failures == ()
    assert verdict.ok


@pytest.mark.parametrize("name", BREAKS)
def test_a_fault_outside_attention_is_named(name: str) -> None:
    assert [contract.name for contract in contracts_of(bytes_of(BREAKS[name])).failures] == [name]


GUARDED = """g (float[batch, seq, 4] x) => (float[batch, seq, 4] y) <float zero = {0}, float[4] w>
    { scaled = Mul (x, w)
      wrong = IsNaN (scaled)
      y = Where (wrong, zero, scaled) }"""


@pytest.mark.parametrize("number", [1.0, float("nan")])
def test_a_weight_that_is_nan_is_told_though_a_guard_hides_what_comes_of_it(number: float) -> None:
    model = onnx.load_from_string(bytes_of(GUARDED.replace(", float[4] w", ", float[4] w = {1, 2, 3, 4}")))
    weight = next(one for one in model.graph.initializer if one.name == "w")
    weight.CopyFrom(onnx.numpy_helper.from_array(np.array([1, 2, 3, number], np.float32), "w"))
    data = model.SerializeToString()
    for verdict in (contracts_of(data), validate(data, data, quick=True)):
        assert verdict.ok == (number == number)
        assert [contract.name for contract in verdict.failures] == ["finite-weights"] * (number != number)
