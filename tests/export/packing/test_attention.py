"""Attention of packed tokens: what masks say beside padding, biases, segments in any order, full and empty batches."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from maskport.models import Mask

from .token_models import PATTERNS, agree, agree_on, attend, feeds, made_by, mask_model, model, runner, why_not

TARGETS = pytest.mark.parametrize("target", ["cpu", "cuda"])
BESIDE = ("causal", "window(2, 0)", "window(1, 1)", "chunked(3)", "segments(doc)", "causal & segments(doc)", "dense(d)")


@TARGETS
@pytest.mark.parametrize("text", BESIDE)
def test_what_a_mask_says_beside_padding_is_said_of_the_tokens_own_places(text: str, target: str) -> None:
    """A hole is no neighbour less: the token before it and the one after it stay two apart."""
    mask = Mask.parse(f"{text} & padding(m)")
    source = mask_model(mask)
    result = made_by(source, target, padding_rows="zero")
    before, after = runner(ir.from_proto(source)), runner(result.model)
    for pattern in PATTERNS:
        given = feeds(source, 4, 9, pattern, 2)
        dense = np.broadcast_to(mask.dense(9, 9, **{name: given[name] for name in mask.tensors}), (4, 1, 9, 9))
        rows = dense.any(-1)[:, 0] & (given["m"] != 0)
        actual = after(given)["y"]
        agree_on(rows, before(given)["y"], actual, what=pattern)
        assert not actual[given["m"] == 0].any()


@pytest.mark.parametrize("text", ["segments(doc)", "causal & segments(doc)"])
@pytest.mark.parametrize("beside", ["", " & padding(m)"])
def test_segments_in_any_order_are_groups_on_cuda(text: str, beside: str) -> None:
    mask = Mask.parse(text + beside)
    source = mask_model(mask)
    result = made_by(source, "cuda")
    (site,) = result.sites
    assert "segments(doc)" in site.why
    assert "dense" not in site.why
    before, after = runner(ir.from_proto(source)), runner(result.model)
    ids = [[5, 5, 5, 5, 5, 5], [0, 1, 2, 3, 4, 5], [1, -7, 1, -7, 2**40, 1], [2, 2, 1, 1, 0, 0], [0, 0, 9, 9, 0, 0]]
    for pattern in PATTERNS:
        given = feeds(source, 5, 6, pattern) | {"doc": np.array(ids)}
        rows = given["m"] != 0 if beside else np.ones((5, 6), bool)
        agree_on(rows, before(given)["y"], after(given)["y"], what=pattern)


@TARGETS
@pytest.mark.parametrize("lengths", ["1,2,S,S", "B,2,S,S", "1,1,S,S", "B,1,1,S", "1,2,1,1"])
def test_a_bias_of_scores(lengths: str, target: str) -> None:
    attention = attend("h", "o", scores="o_t = Add(o_s, b)")
    source = model(attention=attention, inputs=f"float[{lengths}] b")
    agree(source, made_by(source, target), zero=["y"] if target == "cpu" else [])


@TARGETS
def test_a_bias_of_heads_at_any_batch(target: str) -> None:
    """Of the batch's own number of rows: at one row all would look right."""
    attention = attend("h", "o1", scores="o1_t = Add(o1_s, b)")
    attention += attend("o1", "o", scores="o_t = Add(o_s, b)", weights="u")
    source = model(attention=attention, inputs="float[1,2,S,S] b")
    result = made_by(source, target)
    assert len(result.sites) == 2
    agree(source, result, [(1, 6), (2, 6), (6, 2)])


@TARGETS
def test_softcap(target: str) -> None:
    capped = "o_d = Div(o_s, f2)\n o_h = Tanh(o_d)\n o_t = Mul(o_h, f2)"
    source = model(attention=attend("h", "o", scores=capped))
    result = made_by(source, target)
    agree(source, result)


@TARGETS
def test_layers_with_other_masks_are_packed_together(target: str) -> None:
    causal = "c2 = Unsqueeze(causal, a0)\n c3 = Unsqueeze(c2, a0)\n both = And(c3, padded)\n"
    source = model(attention=causal + attend("h", "o1", "both") + attend("o1", "o", weights="u"))
    result = made_by(source, target)
    assert why_not(result) == ""
    assert [("causal" in site.why, "left out" in site.why) for site in result.sites] == [(True, True), (False, True)]
    # A row that has a causal key on the left alone is read by none that is real.
    agree(source, result, zero=["y"])


def test_a_layer_that_attends_padding_is_not_packed() -> None:
    """Its rows hold what the layer before gave to padding."""
    source = model(attention=attend("h", "o1") + attend("o1", "o", None, weights="u"))
    result = made_by(source)
    assert "looks across the tokens" in why_not(result)
    agree(source, result, patterns=["ones"])


def test_a_full_batch_goes_without_the_loop() -> None:
    source = model()
    result = made_by(source)
    (chosen,) = (node for node in result.model.graph if node.op_type == "If")
    bodies = {name: [n.op_type for n in chosen.attributes[name].as_graph()] for name in ("then_branch", "else_branch")}
    assert "Loop" not in bodies["then_branch"]
    assert "Attention" in bodies["then_branch"]
    assert "Loop" in bodies["else_branch"]


EMPTY = """
import numpy as np, onnxruntime as ort
session = ort.InferenceSession({path!r}, providers=["CPUExecutionProvider"])
for length in (1, 5):
    (y,) = session.run(None, {{"x": np.zeros((0, length, 16), np.float32), "m": np.zeros((0, length), np.int64)}})
    assert y.shape == (0, length, 16), y.shape
print("done")
"""


def test_a_batch_of_none_gives_none(tmp_path: Path) -> None:
    """In a process of its own, which an operator might end."""
    path = tmp_path / "m.onnx"
    causal = "c2 = Unsqueeze(causal, a0)\n c3 = Unsqueeze(c2, a0)\n both = And(c3, padded)\n"
    made_by(model(attention=causal + attend("h", "o1", "both") + attend("o1", "o", weights="u")), path=path)
    code = textwrap.dedent(EMPTY).format(path=str(path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "done\n", done.stderr


@TARGETS
def test_no_token_at_all_is_finite_and_zero(target: str) -> None:
    source = model("y = LayerNormalization<axis=-1>(o, vector)")
    result = made_by(source, target)
    given = feeds(source, 3, 7, "none")
    assert not runner(result.model)(given)["y"].any()
