"""Values that the host reads back: counts, lengths and conditions are those of the inputs."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.tools.dryrun import Trace, dryrun

from .graphs import BRANCH, COMPRESSED, CUT, INPUTS, LOOP, MASK, PACKED, TWICE, UNPADDED, parse


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


def test_what_is_not_known_is_named() -> None:
    trace = dryrun(parse(LOOP), 90, {"x": (2, 5, 8)}, graph=False)
    assert (False in [answered for _, _, answered in inside(trace)]) == bool(trace.not_faithful)
    assert any("could not be computed on the CPU" in line for line in trace.not_faithful)
