"""Values that the host reads back: counts, lengths and conditions are those of the inputs."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.tools.dryrun import Trace, dryrun

from .graphs import BRANCH, COMPRESSED, CUT, INPUTS, LOOP, MASK, PACKED, ROWS, TWICE, UNKNOWN, UNPADDED, parse


def outputs(trace: Trace) -> list[int]:
    """Bytes of the outputs, as they are copied to the host after the last node."""
    return [action.bytes for action in trace.actions if action.kind == "copy" and action.where == "after"]


def inside(trace: Trace) -> list[tuple[str | None, int, bool | None]]:
    return [
        (action.op_type, action.bytes, action.answered)
        for action in trace.actions
        if action.kind == "copy" and action.name == "d2h" and action.where != "after"
    ]


@pytest.mark.parametrize(
    ("text", "copies", "rows"),
    [
        (PACKED, [("NonZero", 4, True)], [5]),
        (COMPRESSED, [("Compress", 4, True)], [5]),
        (UNPADDED, [("RemovePadding", 8, True), ("RestorePadding", 4, True)], [5, 10]),
        (CUT, [("MemcpyToHost", 8, True)], [6]),
        (TWICE, [("NonZero", 4, True), ("NonZero", 4, True)], [3]),
    ],
)
def test_shapes_are_those_of_the_masks_own_values(text: str, copies: list[object], rows: list[int]) -> None:
    model = parse(text)
    inputs = {name: INPUTS[name] for name in INPUTS}
    trace = dryrun(model, 90, inputs, graph=False)
    assert inside(trace) == copies
    assert outputs(trace) == [count * 8 * 2 for count in rows]


def test_another_mask_gives_other_shapes() -> None:
    trace = dryrun(parse(PACKED), 90, {**INPUTS, "attention_mask": np.eye(2, 5, dtype=np.int64)}, graph=False)
    assert outputs(trace) == [2 * 8 * 2]
    assert next(action.detail for action in trace.actions if action.kind == "library") == "8x2x8"


@pytest.mark.parametrize(("mask", "taken"), [(np.ones_like(MASK), ["Relu"]), (MASK, ["Neg", "Relu"])])
def test_a_branch_is_taken_by_its_condition(mask: np.ndarray, taken: list[str]) -> None:
    trace = dryrun(parse(BRANCH), 90, {**INPUTS, "attention_mask": mask}, graph=False)
    launched = [action.op_type for action in trace.actions if action.launch]
    assert launched[launched.index("Cast") + 1 :] == taken


@pytest.mark.parametrize(("value", "turns"), [(0.01, 3), (0.05, 2), (1, 1)])
def test_a_loop_turns_as_often_as_its_values_say(value: float, turns: int) -> None:
    trace = dryrun(parse(LOOP), 90, {"x": np.full((2, 5, 8), value, np.float16)}, graph=False)
    assert [action.within for action in trace.actions if action.op_type == "Add"] == [("unnamed Loop 1",)] * turns
    assert trace.not_faithful == ()


def test_what_is_read_back_in_a_loop_in_a_branch_is_known_for_each_turn() -> None:
    trace = dryrun(parse(ROWS), 90, INPUTS, graph=False)
    cut = [action for action in trace.actions if action.op_type == "MemcpyToHost" and len(action.within) == 2]
    assert [action.answered for action in cut] == [True, True]
    # The shortest row decides, at last.
    assert outputs(trace) == [2 * 2 * 8 * 2]


def test_what_is_not_known_is_named() -> None:
    trace = dryrun(parse(UNKNOWN), 90, {"x": (2, 5, 320)}, graph=False)
    assert inside(trace) == [("MemcpyToHost", 8, False)]
    line = "MemcpyToHost Memcpy: what it reads back from the device (8 bytes) could not be computed on the CPU; "
    assert trace.not_faithful == (f"{line}shapes that depend on it are wrong",)
