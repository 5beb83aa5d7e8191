"""Faults that are planted: each is what its name says, and is caught; what is no fault is proven to be none."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from maskport.export import inspect
from maskport.models import Mask
from maskport.tools.errors import ToolError
from maskport.tools.mutants import SelfTest, self_test
from maskport.tools.mutants.mutations import MUTATIONS
from maskport.tools.mutants.plant import Ground

from ...export.symbolic.attention_text import attention as dense
from ..contracts.layers import layers
from ..tiny_models import tiny

PADDING = "padding(attention_mask)"


def ground(*windows: int) -> Ground:
    return next(Ground.each(ir.from_proto(layers(None, *windows))))


def planted(name: str, *windows: int) -> ir.Model | None:
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == name)
    made = ground(*windows).plant(mutation.change, mutation.rewrite)
    return None if made is None else made[0]


def run(model: ir.Model) -> np.ndarray:
    rng = np.random.default_rng(0)
    mask = np.ones((2, 11), np.int64)
    mask[1, :4] = 0
    return outputs(model, {"x0": rng.standard_normal((2, 11, 8)).astype("f"), "attention_mask": mask})


@pytest.mark.parametrize(
    ("name", "windows", "mask"),
    [
        ("mask dropped", (3,), "full"),
        ("padding dropped", (3,), "window(3, 0)"),
        ("mask inverted", (3,), f"~(window(3, 0) & {PADDING})"),
        ("mask transposed", (3,), "window(0, 3) & query_padding(attention_mask)"),
        ("mask shifted by one", (3,), f"window(3, 0, past + 1) & {PADDING}"),
        ("window one too wide", (3,), f"window(4, 0) & {PADDING}"),
        ("window one too narrow", (3,), f"window(2, 0) & {PADDING}"),
        ("causal made bidirectional", (3,), f"window(3, 3) & {PADDING}"),
        ("causal made bidirectional", (0,), PADDING),
        ("mask frozen at length 8", (3,), f"window(3, 0) & {PADDING} & prefix(8)"),
    ],
)
def test_a_fault_of_the_mask_is_read_back_as_what_it_is(name: str, windows: tuple[int, ...], mask: str) -> None:
    model = planted(name, *windows)
    assert model is not None
    assert inspect(model).sites[0].mask == Mask.parse(mask)


def test_an_attention_written_anew_without_a_fault_is_what_it_was() -> None:
    made = ground(3).plant(lambda planted: planted)
    assert made is not None
    assert np.abs(run(made[0]) - run(ir.from_proto(layers(None, 3)))).max() < 1e-6


@pytest.mark.parametrize(
    "name",
    [
        "window one too wide",
        "window one too narrow",
        "bidirectional made causal",
        "softcap after the mask",
        "bias lost",
    ],
)
def test_a_fault_that_a_model_can_not_have_is_not_planted(name: str) -> None:
    assert planted(name, 0) is None


@pytest.fixture(scope="module")
def tested() -> SelfTest:
    return self_test(layers(None, 3, 3).SerializeToString())


def test_every_fault_is_caught(tested: SelfTest) -> None:
    assert tested.ok
    assert tested.survivors == ()
    assert [mutant.name for mutant in tested.mutants if not mutant.caught] == []


def test_each_fault_is_tried_or_named_as_none_that_it_can_have(tested: SelfTest) -> None:
    names = [mutation.name for mutation in MUTATIONS]
    assert sorted([*(mutant.name for mutant in tested.mutants), *tested.not_applicable]) == sorted(names)
    assert set(tested.not_applicable) == {
        "bidirectional made causal",
        "mask of head 0 for every head",
        "bias lost",
        "softcap after the mask",
    }


def test_parity_catches_all_and_contracts_all_but_what_no_mask_says(tested: SelfTest) -> None:
    assert [mutant.name for mutant in tested.mutants if mutant.parity is None] == []
    missed = {mutant.name for mutant in tested.mutants if mutant.contracts is None}
    assert missed == {"scale left out", "KV heads swapped"}


def test_one_batch_without_padding_misses_faults_of_padding(tested: SelfTest) -> None:
    missed = {mutant.name for mutant in tested.mutants if not mutant.one_batch}
    assert {"padding dropped", "padding of row 0 for every row", "left padding taken for right"} <= missed


def test_a_fault_of_rows_that_are_not_there_is_proven_to_be_none() -> None:
    """Where each token attends its own, no row is without a key."""
    result = self_test(without_padding())
    mutant = next(mutant for mutant in result.mutants if mutant.name == "empty rows NaN")
    assert not mutant.caught
    assert mutant.equivalent == "no row is without a key: under `window(3, 0)` each attends its own"
    assert result.ok


def without_padding() -> bytes:
    model = layers("mask dropped", 3)
    del model.graph.input[1]
    unread = [node for node in model.graph.node if node.output[0] in ("real0", "keys0")]
    for node in unread:
        model.graph.node.remove(node)
    return model.SerializeToString()


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(ToolError, match="no attention of the file can be written anew"):
        self_test(tiny())


def test_a_model_that_breaks_its_own_contracts_is_refused() -> None:
    with pytest.raises(ToolError, match="the untouched file fails its own contracts: "):
        self_test(layers("weak fill").SerializeToString())


def test_a_mask_of_each_head_is_read_from_the_first() -> None:
    model = ir.from_proto(dense("c = Identity(m)", "bool[B,4,S,S] m"))
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == "mask of head 0 for every head")
    made = next(Ground.each(model)).plant(mutation.change, mutation.rewrite)
    assert made is not None
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal((2, 4, 5, 8)).astype("f") for name in "qkv"}
    mask = (rng.random((2, 4, 5, 5)) < 0.5) | np.eye(5, dtype=bool)
    wrong = outputs(made[0], {**inputs, "m": mask})
    right = outputs(model, {**inputs, "m": np.broadcast_to(mask[:, :1], mask.shape)})
    assert np.abs(wrong - right).max() < 1e-6
    assert np.abs(wrong - outputs(model, {**inputs, "m": mask})).max() > 0.1


def test_a_bias_that_masks_is_a_bias_alone_when_the_mask_is_dropped() -> None:
    """It holds the fill of the mask, too: without the mask it would go on hiding keys."""
    body = "zero4 = Where(m, bias, low)\n masked = Add(s, zero4)"
    model = ir.from_proto(dense(body, "bool[B,1,S,S] m, float[1,4,S,S] bias"))
    dropped = next(Ground.each(model)).plant(MUTATIONS[0].change)
    assert dropped is not None
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal((2, 4, 5, 8)).astype("f") for name in "qkv"}
    inputs |= {"bias": rng.standard_normal((1, 4, 5, 5)).astype("f"), "m": np.tril(np.ones((2, 1, 5, 5), bool))}
    attended = outputs(dropped[0], inputs)
    hidden = inputs["m"] == 0
    open_ = {**inputs, "m": np.ones_like(hidden), "bias": np.where(hidden[:1], 0, inputs["bias"]).astype("f")}
    assert np.abs(attended - outputs(model, open_)).max() < 1e-5


def outputs(model: ir.Model, inputs: dict[str, np.ndarray]) -> np.ndarray:
    import onnxruntime as ort

    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]
