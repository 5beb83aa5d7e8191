"""What rows depend on is measured: a right model agrees with its masks, and a planted fault is seen where it is."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from maskport.export import optimize
from maskport.models import Mask
from maskport.tools.mutants.mutations import MUTATIONS
from maskport.tools.mutants.plant import Ground
from maskport.tools.seen.attention import see_attention
from maskport.tools.seen.cells import AGREES, EXTRA, MISSING, UNKNOWN, Seen, SeenAttention

from ..export.symbolic.attention_text import attention as dense
from .contracts.layers import layers
from .tiny_models import tiny

RIGHT = layers(None, 3, 3).SerializeToString()


@functools.cache
def mutant(name: str) -> bytes:
    """Return the right model with a fault in its first layer."""
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == name)
    made = next(Ground.each(ir.from_proto(layers(None, 3, 3)))).plant(mutation.change, mutation.rewrite)
    assert made is not None
    return ir.to_proto(made[0]).SerializeToString()


@functools.cache
def seen(fault: str | None = None) -> SeenAttention:
    return see_attention(RIGHT if fault is None else mutant(fault), reference=RIGHT)


def of(found: SeenAttention, name: str | None = None) -> Seen:
    """Return what was seen of one attention, or of the model as a whole."""
    return next(s for s in found.seen if (name in s.names if name else not s.names))


FIRST, SECOND = "layers.0.self_attn", "layers.1.self_attn"


def distances(found: Seen, kind: int) -> set[int]:
    """Return how far before their rows the tokens of cells of a kind are."""
    return {int(q - k) for panel in found.panels for q, k in np.argwhere(panel.cells == kind)}


def test_a_right_model_is_as_expected_with_padding_and_without() -> None:
    whole, both = seen().seen
    assert seen().notes == ()
    assert (whole.ok, both.ok) == (True, True)
    assert (whole.mask, both.names) == (None, (FIRST, SECOND))
    assert both.mask == Mask.parse("window(3, 0) & padding(attention_mask)")
    # Two layers reach twice as far as one.
    assert (distances(whole, AGREES), distances(both, AGREES)) == (set(range(7)), set(range(4)))
    assert [panel.title for panel in whole.panels] == [
        "no padding",
        "row 0: padding right",
        "row 1: padding left",
        "row 2: padding here and there",
    ]
    for panel in (*whole.panels, *both.panels):
        assert (panel.cells[~panel.real_rows] == UNKNOWN).all()
        assert (panel.cells[panel.real_rows] != UNKNOWN).all()


@pytest.mark.parametrize(
    ("fault", "extra", "missing"),
    [
        ("mask dropped", {*range(-11, 0), *range(4, 12)}, set()),
        ("causal made bidirectional", {-3, -2, -1}, set()),
        ("window one too wide", {4}, set()),
        ("window one too narrow", set(), {3}),
        ("mask shifted by one", {-1}, {3}),
    ],
)
def test_a_fault_is_seen_in_its_layer_and_in_the_whole(fault: str, extra: set[int], missing: set[int]) -> None:
    first = of(seen(fault), FIRST)
    # At padding there may be more.
    assert distances(Seen((), None, "", "", first.panels[:1]), EXTRA) == extra
    assert distances(first, MISSING) == missing
    assert of(seen(fault), SECOND).ok
    assert bool(of(seen(fault)).count(EXTRA)) == bool(extra)


@pytest.mark.parametrize("fault", ["padding dropped", "padding of row 0 for every row", "left padding taken for right"])
def test_a_fault_of_padding_is_seen_where_padding_is(fault: str) -> None:
    for found in (of(seen(fault)), of(seen(fault), FIRST)):
        assert (found.panels[0].cells != EXTRA).all()
        wrong = [(panel.cells[:, ~panel.real_tokens] == EXTRA).any() for panel in found.panels]
        assert any(wrong[1:])


def test_a_fill_that_is_too_weak_still_has_a_weight() -> None:
    """No mask is read from such scores, so that the attention is named by its node."""
    _, second, weak = seen("fill weakened to -10").seen
    assert (second.names, second.ok) == ((SECOND,), True)
    assert weak.names[0].startswith(FIRST)
    assert weak.count(EXTRA) > 100


def test_a_declared_mask_is_what_is_expected() -> None:
    found = see_attention(RIGHT, "causal & padding(attention_mask)")
    assert "causal & padding(attention_mask)" in found.expected
    assert distances(of(found, FIRST), MISSING) == set(range(4, 12))
    assert of(found, FIRST).count(EXTRA) == 0


def test_a_reference_without_masks_is_measured_in_the_same_way() -> None:
    import onnxruntime as ort

    session = ort.InferenceSession(RIGHT, providers=["CPUExecutionProvider"])

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"x2": session.run(None, dict(inputs))[0]}

    assert of(see_attention(RIGHT, reference=run)).ok
    wide = of(see_attention(mutant("window one too wide"), reference=run))
    assert (distances(wide, EXTRA), wide.count(MISSING)) == ({7}, 0)


def test_weights_inside_an_operator_are_told_and_the_whole_is_seen_anyway(tmp_path: Path) -> None:
    path = tmp_path / "fast.onnx"
    optimize(RIGHT, path)
    found = see_attention(path, reference=RIGHT)
    assert [s.names for s in found.seen] == [()]
    assert of(found).ok
    assert of(found).count(AGREES) == of(seen()).count(AGREES)
    assert len(found.notes) == 1


def test_what_can_not_be_seen_is_told() -> None:
    assert see_attention(b"no model").notes[0].startswith("nothing could be seen: these bytes are no ONNX model")
    heads = dense("c = Identity(m)", "bool[B,1,S,S] m").SerializeToString()
    assert see_attention(heads).notes == ("no output has an axis of tokens, and no attention is over one",)
    found = see_attention(RIGHT, "padding(other)")
    assert "--expect names 'other'" in found.notes[0]
    assert found.seen == ()


def test_a_model_without_attention_is_seen_as_a_whole() -> None:
    """It takes the mean of real tokens: without masks to read, every real token may reach every row."""
    found = see_attention(tiny())
    assert [s.names for s in found.seen] == [()]
    assert of(found).ok
    assert of(see_attention(tiny("dropped"), reference=tiny())).count(EXTRA) > 0
