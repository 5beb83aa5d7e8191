"""The cases of a validation: all pairs of values meet, few cases do it, and what is too long is told."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from maskport.export.cases.draw import Size, draw_case, sizes_of
from maskport.export.cases.layout import Layout
from maskport.export.cases.patterns import padding_patterns
from maskport.export.cases.structures import STRUCTURES
from maskport.models import Adjacency, Causal, KeyPadding, Mask, Prefix, Segments
from maskport.tools.parity.plan import BATCHES, LENGTHS, MAX_LENGTH, OTHERS, PATTERNS, Beyond, Lengths, plan_of

PADDED = KeyPadding("attention_mask")
TOKENS = {"role": "tokens", "axes": ["batch", "seq", 4]}
PADDING = {"role": "mask", "axes": ["batch", "seq"], "pad": 0}


def layout_of(**inputs: dict[str, object]) -> Layout:
    return Layout.from_io({"inputs": inputs, "outputs": {"y": {"axes": ["batch", "seq", 4]}}})


ENCODER = layout_of(x=TOKENS, attention_mask=PADDING)
CROSS = layout_of(x=TOKENS, attention_mask=PADDING, tgt={"role": "tokens", "axes": ["batch", "target", 4]})
PACKED = layout_of(x=TOKENS, segment_ids={"role": "packing", "axes": ["batch", "seq"]})
SETTINGS: dict[str, tuple[Layout, list[Mask], Lengths]] = {
    "an encoder": (ENCODER, [PADDED], Lengths(9, [Beyond(512, "length/512", "")])),
    "a decoder and its encoder": (CROSS, [PADDED, Causal()], Lengths(9)),
    "packed texts": (PACKED, [Segments("segment_ids")], Lengths(9)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_each_pair_of_values_meets_in_far_fewer_cases_than_there_are(name: str) -> None:
    layout, masks, lengths = SETTINGS[name]
    plan = plan_of(layout, masks, lengths)
    met = {pair for choice in plan.choices for pair in itertools.combinations(enumerate(choice), 2)}
    values = [dict.fromkeys(getattr(choice, kind) for choice in plan.choices) for kind in plan.choices[0]._fields]
    possible = 0
    for batch, length, other, pattern, structure in itertools.product(*values):
        if pattern not in padding_patterns(batch, length, np.random.default_rng(0)):
            # At this size it is another's equal.
            continue
        possible += 1
        assert set(itertools.combinations(enumerate((batch, length, other, pattern, structure)), 2)) <= met
    assert {choice.batch for choice in plan.choices} == set(BATCHES)
    assert {choice.length for choice in plan.choices} >= {*LENGTHS, 9}
    assert len(plan.choices) <= possible / 2


def test_a_quick_plan_is_one_size_with_every_padding() -> None:
    plan = plan_of(
        ENCODER, [PADDED], Lengths(9, [Beyond(512, "length/512", "rows of 512 tokens are allowed")]), quick=True
    )
    assert [choice.pattern for choice in plan.choices] == list(PATTERNS)
    assert {(choice.batch, choice.length) for choice in plan.choices} == {(3, 17)}
    assert [one.name for one in plan.not_run] == ["length/512"]


def test_what_is_too_long_is_told_and_what_is_long_meets_few_paddings() -> None:
    beyond = [Beyond(2047, "window/1023", "a window"), Beyond(MAX_LENGTH + 1, "length/2049", "too long")]
    plan = plan_of(ENCODER, [PADDED], Lengths(None, beyond))
    assert [one.name for one in plan.not_run] == ["length/2049"]
    assert [choice.pattern for choice in plan.choices if choice.length == 2047] == ["ones", "holes"]


def test_sizes_that_are_fixed_are_not_varied() -> None:
    fixed = Layout.from_io(
        {"inputs": {"x": {"role": "tokens", "axes": [2, 5, 4]}}, "outputs": {"y": {"axes": [2, 5, 4]}}}
    )
    plan = plan_of(fixed, [], Lengths(5, [Beyond(512, "length/512", "")]))
    assert len(plan.choices) == 1
    assert str(plan) == "1 cases: the sizes are fixed; seed 0"


def test_a_plan_tells_what_it_tries() -> None:
    told = str(plan_of(CROSS, [PADDED], Lengths(), seed=7))
    others = ", ".join(map(str, OTHERS))
    assert told.endswith(f"batch 1, 2, 3; seq 1, 7, 17, 33; target {others}; mask {', '.join(PATTERNS)}; seed 7")


def test_the_cases_are_drawn_by_the_seed() -> None:
    examples = {"x": np.ones((2, 5, 4), np.float32), "attention_mask": np.ones((2, 5), np.int64)}
    drawn = [
        list(plan_of(ENCODER, [PADDED], Lengths(), seed=seed).cases(ENCODER, examples, [PADDED])) for seed in (0, 0, 1)
    ]
    assert [case.name for case in drawn[0]] == [case.name for case in drawn[2]]
    assert all(np.array_equal(a.inputs["x"], b.inputs["x"]) for a, b in zip(drawn[0], drawn[1], strict=True))
    assert not any(np.array_equal(a.inputs["x"], b.inputs["x"]) for a, b in zip(drawn[0], drawn[2], strict=True))


def drawn(mask: Mask, name: str, io: dict[str, object], example: np.ndarray) -> dict[str, np.ndarray]:
    """Return what is drawn of one tensor by the structure."""
    layout = layout_of(x=TOKENS, attention_mask=PADDING, **{name: io})
    examples = {"x": np.ones((2, 5, 4), np.float32), "attention_mask": np.ones((2, 5), np.int64), name: example}
    sizes = sizes_of(layout, Size(3, 17, 11))
    return {one: draw_case(layout, examples, [mask], sizes, structure=one).inputs[name] for one in STRUCTURES}


def test_segments_are_whole_in_parts_apart_and_mixed() -> None:
    mask, example = Segments("ids") & PADDED, np.array([[3, 3, 4, 4, 5]] * 2)
    found = drawn(mask, "ids", {"role": "packing", "axes": ["batch", "seq"]}, example)
    for structure, ids in found.items():
        assert set(np.unique(ids)) <= {3, 4, 5}
        same = ids[:, 1:] == ids[:, :-1]
        assert {"whole": same.all(), "apart": not same.any()}.get(structure, True)


def test_a_prefix_is_all_tokens_some_or_none() -> None:
    mask = (Prefix("n") | Causal()) & PADDED
    found = drawn(mask, "n", {"role": "mask", "axes": ["batch"]}, np.array([3, 5]))
    assert found["whole"].tolist() == [17, 17, 17]
    assert found["apart"].tolist() == [0, 0, 0]
    assert found["mixed"][0] == 0
    assert found["mixed"][2] == 17
    assert ((found["parts"] >= 0) & (found["parts"] <= 17)).all()


def test_adjacency_is_full_itself_alone_or_random() -> None:
    mask = Adjacency("edges") & PADDED
    found = drawn(mask, "edges", {"role": "mask", "axes": ["batch", "seq", "seq"]}, np.ones((2, 5, 5), np.int64))
    assert found["whole"].all()
    assert (found["apart"] == np.eye(17)).all()
    assert found["parts"][:, range(17), range(17)].all()
    assert not found["mixed"][:, range(17), range(17)].all()
