"""Every cell of the table of `simplify`: what goes, for which rows, by which fact; and what must stay."""

from __future__ import annotations

import json

import numpy as np
import onnx_ir as ir
import pytest
from maskport.export.lowering.asked import Asked
from maskport.export.lowering.facts import Grants
from maskport.export.lowering.simplify import PADDING_ROWS, Simplified, simplify
from maskport.models import Mask

from .canonical_models import PATTERNS, Case, padding

RIGHT, LEFT = "right-padding", "left-padding"
VALID = ("any", "zero")


def simplified(case: Case, padding_rows: str, *assume: str, pads: dict[str, int] | None = None) -> Simplified:
    model = case.model()
    if pads:
        inputs = {name: {"role": "mask", "axes": ["batch", "seq"], "pad": pad} for name, pad in pads.items()}
        model.metadata_props["maskport.io"] = json.dumps({"version": 1, "inputs": inputs, "outputs": {}})
    asked = Asked.of(next(iter(model.graph)), None, 24)
    return simplify(asked.mask, asked.lengths, asked.inputs.tensors, Grants(assume, model), padding_rows)


# Mask, what the graph fixes, what is granted; then the mask under keep, and under any and zero.
CELLS = [
    # Fixed lengths.
    ("window(6, 0)", {"seq": 7}, (), "causal", "causal"),
    ("window(5, 0)", {"seq": 7}, (), "window(5, 0)", "window(5, 0)"),
    ("window(9, 9) & padding(m)", {"seq": 7}, (), "padding(m)", "padding(m)"),
    ("window(6, 0)", {}, (), "window(6, 0)", "window(6, 0)"),
    # Granted lengths.
    ("window(127, 0)", {}, ("length_le:128",), "causal", "causal"),
    ("window(126, 0)", {}, ("length_le:128",), "window(126, 0)", "window(126, 0)"),
    ("chunked(128) & padding(m)", {}, ("length_le:128",), "chunked(128) & padding(m)", "chunked(128) & padding(m)"),
    # Conditions on queries.
    ("query_padding(m)", {}, (), "query_padding(m)", "full"),
    ("causal & padding(m) & query_padding(m)", {}, (), "causal & padding(m) & query_padding(m)", "causal & padding(m)"),
    ("causal & ~query_padding(m)", {}, (), "causal & ~query_padding(m)", "causal"),
    # Padding that no real query sees.
    ("window(0, 0) & padding(m)", {}, (), "window(0, 0) & padding(m)", "window(0, 0)"),
    ("window(1, 0) & padding(m)", {}, (), "window(1, 0) & padding(m)", "window(1, 0) & padding(m)"),
    ("causal & padding(m)", {}, (), "causal & padding(m)", "causal & padding(m)"),
    # Right padding.
    ("causal & padding(m)", {}, (RIGHT,), "causal & padding(m)", "causal"),
    ("window(3, 0) & padding(m)", {}, (RIGHT,), "window(3, 0) & padding(m)", "window(3, 0)"),
    ("causal & chunked(4) & padding(m)", {}, (RIGHT,), "causal & chunked(4) & padding(m)", "causal & chunked(4)"),
    ("padding(m)", {}, (RIGHT,), "padding(m)", "padding(m)"),
    ("window(3, 1) & padding(m)", {}, (RIGHT,), "window(3, 1) & padding(m)", "window(3, 1) & padding(m)"),
    ("(causal | prefix(n)) & padding(m)", {}, (RIGHT,), *["padding(m) & (causal | prefix(n))"] * 2),
    # Left padding.
    ("causal & padding(m)", {}, (LEFT,), "causal & padding(m)", "causal & padding(m)"),
    ("window(0, 3) & padding(m)", {}, (LEFT,), "window(0, 3) & padding(m)", "window(0, 3)"),
]


@pytest.mark.parametrize(("mask", "static", "assume", "keep", "valid"), CELLS)
@pytest.mark.parametrize("padding_rows", PADDING_ROWS)
def test_a_cell(
    mask: str, static: dict[str, int], assume: tuple[str, ...], keep: str, valid: str, padding_rows: str
) -> None:
    found = simplified(Case(mask, static=static), padding_rows, *assume)
    assert str(found.mask) == (keep if padding_rows == "keep" else valid)
    dropped = found.mask != Mask.parse(mask)
    assert bool(found.why) == dropped
    assert {assumed.check for assumed in found.assumes} == (
        {"length_le:128"}
        if dropped and assume == ("length_le:128",)
        else {"right_padded"}
        if dropped and assume == (RIGHT,)
        else {"left_padded"}
        if dropped and assume == (LEFT,)
        else set()
    )


@pytest.mark.parametrize(("mask", "static", "assume", "keep", "valid"), CELLS)
def test_the_rows_that_count_are_the_same(
    mask: str, static: dict[str, int], assume: tuple[str, ...], keep: str, valid: str
) -> None:
    before, random = Mask.parse(mask), np.random.default_rng(0)
    granted = {RIGHT: ("ones", "right", "one"), LEFT: ("ones", "left")}
    allowed = [
        p for p in PATTERNS if all(p in granted.get(text, PATTERNS) for text in assume) and (p != "one" or not assume)
    ]
    for after, padding_rows in ((Mask.parse(keep), "keep"), (Mask.parse(valid), "any")):
        for pattern in allowed:
            length = static.get("seq", 128 if "length_le:128" in assume else 9)
            real = padding(pattern, 3, length, random)
            tensors = {"m": real, "n": random.integers(0, length + 1, 3)}
            dense = [
                np.broadcast_to(
                    np.asarray(m.dense(length, length, **{name: tensors[name] for name in m.tensors})),
                    (3, 1, length, length),
                )
                for m in (before, after)
            ]
            counts = dense[0].any(-1)[:, 0]
            if padding_rows != "keep":
                counts = counts & (real != 0 if "m" in before.tensors and "~query" not in mask else True)
            np.testing.assert_array_equal(dense[0][:, 0][counts], dense[1][:, 0][counts])


def test_left_padding_is_not_taken_for_right() -> None:
    found = simplified(Case("causal & padding(m)"), "any", LEFT)
    assert str(found.mask) == "causal & padding(m)"
    assert not found.assumes


def test_only_what_the_proof_needs_is_assumed() -> None:
    found = simplified(Case("causal & padding(m)"), "any", RIGHT, LEFT, "length_le:128")
    assert [(a.input, a.check, a.axis) for a in found.assumes] == [("m", "right_padded", 1)]
    assert found.assumes[0].to_json()["source"] == "--assume right-padding"


def test_padding_of_another_sequence_says_nothing_of_queries() -> None:
    found = simplified(Case("causal & padding(m)", cross=True), "any", RIGHT)
    assert str(found.mask) == "causal & padding(m)"


def test_what_is_no_input_is_not_assumed() -> None:
    case = Case("causal & padding(m)")
    model = case.model()
    node = next(iter(model.graph))
    # A mask that is computed can't be checked at a run.
    computed = ir.node("Not", [node.inputs[-1]])
    computed.outputs[0].name, computed.outputs[0].shape = "computed", node.inputs[-1].shape
    model.graph.insert_before(node, computed)
    node.replace_input_with(len(node.inputs) - 1, computed.outputs[0])
    asked = Asked.of(node, None, 24)
    found = simplify(asked.mask, asked.lengths, asked.inputs.tensors, Grants([RIGHT], model), "any")
    assert str(found.mask) == "causal & padding(m)"


def test_the_pad_value_must_be_the_one_that_is_checked() -> None:
    case = Case("causal & padding(m != 1)")
    assert str(simplified(case, "any", RIGHT).mask) == "causal & padding(m != 1)"
    assert str(simplified(case, "any", RIGHT, pads={"m": 1}).mask) == "causal"


def test_a_mask_is_no_padding_where_what_is_called_padding_is_attended() -> None:
    # The other way round, a real token is one that the mask hides: nothing is known of which queries count.
    assert str(simplified(Case("window(0, 0) & ~padding(m)"), "any").mask) == "window(0, 0) & ~padding(m)"
    assert str(simplified(Case("causal | padding(m)"), "any", RIGHT).mask) == "causal | padding(m)"


def test_one_new_token_sees_its_whole_cache() -> None:
    found = simplified(Case("causal", past=True, static={"seq": 1}), "keep")
    assert str(found.mask) == "full"


def test_a_length_is_assumed_of_the_input_that_has_it() -> None:
    (assumed,) = simplified(Case("window(127, 0) & padding(m)"), "keep", "length_le:128").assumes
    assert (assumed.input, assumed.check, assumed.axis) == ("m", "length_le:128", 1)


@pytest.mark.parametrize("assume", ["right_padded", "length_le:0", "length_le:x", "trust-me"])
def test_an_unknown_assumption_is_refused(assume: str) -> None:
    with pytest.raises(ValueError, match=r"right-padding, left-padding, or length_le:N"):
        Grants([assume], Case().model())


def test_an_unknown_word_for_padding_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="keep, any, zero; got 'all'"):
        simplified(Case("causal"), "all")
