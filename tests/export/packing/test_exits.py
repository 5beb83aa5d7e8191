"""What leaves the packed tokens: outputs, places that are picked, means of real tokens, keys of others."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from .token_models import (
    PATTERNS,
    SIZES,
    WIDTH,
    agree,
    agree_on,
    attend,
    feeds,
    made_by,
    model,
    runner,
    why_not,
)

POOLED = f"float[B,{WIDTH}] y"
TARGETS = pytest.mark.parametrize("target", ["cpu", "cuda"])
CAUSAL = "c2 = Unsqueeze(causal, a0)\n c3 = Unsqueeze(c2, a0)\n both = And(c3, padded)\n" + attend("h", "o", "both")
NEAR = (
    "i2 = Constant<value_int=2>()\n near = LessOrEqual(distance, i2)\n nc = And(near, causal)\n"
    + "n2 = Unsqueeze(nc, a0)\n n3 = Unsqueeze(n2, a0)\n both = And(n3, padded)\n"
    + attend("h", "o", "both")
)
LINKED = (
    "c2 = Unsqueeze(causal, a0)\n c3 = Unsqueeze(c2, a0)\n gb = Cast<to=9>(g)\n g1 = Unsqueeze(gb, a1)\n"
    + "cg = And(c3, g1)\n both = And(cg, padded)\n"
    + attend("h", "o", "both")
)
FIRST = "y = Gather<axis=1>(o, i0)"
LAST = "at = Constant<value_int=-1>()\n y = Gather<axis=1>(o, at)"
MEAN = """
  mf = Cast<to=1>(m)
  mu = Unsqueeze(mf, a2)
  kept = Mul(o, mu)
  total = ReduceSum<keepdims=0>(kept, a1)
  many = ReduceSum<keepdims=1>(mf, a1)
  least = Max(many, f1)
  y = Div(total, least)"""


@TARGETS
def test_rows_of_padding_are_zero_in_every_output(target: str) -> None:
    source = model("y = Neg(o)\n z = MatMul(o, matrix)", outputs=f"float[B,S,{WIDTH}] y, float[B,S,{WIDTH}] z")
    result = made_by(source, target, padding_rows="zero")
    agree(source, result, zero=["y", "z"])


@TARGETS
@pytest.mark.parametrize(
    ("body", "attention"),
    [(FIRST, None), (FIRST, CAUSAL), (FIRST, NEAR), (FIRST, LINKED), (LAST, None), (LAST, CAUSAL)],
)
def test_a_place_that_is_picked_may_be_padding(body: str, attention: str | None, target: str) -> None:
    """The first token of a row that is padded on the left, say: its query attends the real keys."""
    inputs = "int64[B,S,S] g" if attention == LINKED else ""
    source = model(body, attention=attention, inputs=inputs, outputs=POOLED)
    result = made_by(source, target)
    # On CUDA causal rows have no place for a token that is no key.
    assert (why_not(result) == "") is (target == "cpu" or attention != CAUSAL)
    before, after = runner(ir.from_proto(source)), runner(result.model)
    for batch, length in SIZES:
        for pattern in PATTERNS:
            given = feeds(source, batch, length, pattern)
            dense = np.broadcast_to(given["m"][:, None, :] != 0, (batch, length, length))
            if attention is not None:
                dense = dense & np.tri(length, dtype=bool)
            if attention == NEAR:
                dense = dense & ~np.tri(length, k=-3, dtype=bool)
            if attention == LINKED:
                dense = dense & (given["g"] != 0)
            has_key = dense.any(-1)[:, 0 if body == FIRST else -1]
            agree_on(has_key, before(given)["y"], after(given)["y"], what=f"{batch}, {length}, {pattern}")


@pytest.mark.parametrize("place", ["i1", "two_back"])
def test_another_place_is_not_picked_from_packed_tokens(place: str) -> None:
    """Which token is the second depends on how many are padding, and under a causal mask what it attends, too."""
    source = model(
        f"two_back = Constant<value_int=-2>()\n y = Gather<axis=1>(o, {place})", attention=CAUSAL, outputs=POOLED
    )
    result = made_by(source)
    assert "which under padding sees other keys" in why_not(result)
    agree(source, result, [(3, 7)], patterns=["ones"])


@TARGETS
def test_a_range_of_places_is_not_picked(target: str) -> None:
    source = model("y = Slice(o, a0, a2, a1)", outputs=f"float[B,T,{WIDTH}] y")
    assert "looks across the tokens" in why_not(made_by(source, target))


@TARGETS
def test_a_mean_of_real_tokens(target: str) -> None:
    source = model(MEAN, outputs=POOLED)
    result = made_by(source, target)
    assert why_not(result) == ""
    agree(source, result)


@pytest.mark.parametrize(
    "body",
    [
        "y = ReduceMean<keepdims=0>(o, a1)",
        "y = ReduceMax<keepdims=0>(o, a1)",
        # A factor that is not zero at padding.
        MEAN.replace("mu = Unsqueeze(mf, a2)", "mg = Add(mf, f1)\n mu = Unsqueeze(mg, a2)"),
        # The mask the other way round.
        MEAN.replace("mu = Unsqueeze(mf, a2)", "mg = Sub(f1, mf)\n mu = Unsqueeze(mg, a2)"),
        # Another mask.
        MEAN.replace("mf = Cast<to=1>(m)", "mf = Cast<to=1>(other)"),
    ],
)
def test_a_mean_that_padding_has_a_say_in(body: str) -> None:
    source = model(body, outputs=POOLED, inputs="int64[B,S] other")
    result = made_by(source)
    assert "looks across the tokens" in why_not(result)
    agree(source, result, patterns=["ones"])


@TARGETS
def test_zeros_chosen_by_the_mask_are_read_across_tokens(target: str) -> None:
    source = model(
        "su = Unsqueeze(shown, a2)\n k0 = Where(su, o, f0)\n y = ReduceSum<keepdims=0>(k0, a1)", outputs=POOLED
    )
    result = made_by(source, target)
    assert why_not(result) == ""
    agree(source, result)
    ones = model(
        "su = Unsqueeze(shown, a2)\n k0 = Where(su, o, f1)\n y = ReduceSum<keepdims=0>(k0, a1)", outputs=POOLED
    )
    assert "looks across the tokens" in why_not(made_by(ones, target))


def test_lengths_of_packed_values_are_those_of_the_batch() -> None:
    source = model(
        "os = Shape(o)\n y = Identity(os)\n z = Shape<start=1, end=2>(o)",
        outputs="int64[3] y, int64[1] z",
    )
    result = made_by(source)
    before, after = runner(ir.from_proto(source)), runner(result.model)
    given = feeds(source, 3, 7, "holes")
    assert {name: list(v) for name, v in after(given).items()} == {name: list(v) for name, v in before(given).items()}


@TARGETS
@pytest.mark.parametrize("masked", [True, False])
def test_keys_of_attention_over_packed_tokens(target: str, masked: bool) -> None:
    """A decoder attends an encoder's tokens: padding among them is masked, or the tokens are not packed."""
    mask = "padded" if masked else None
    source = model(
        attend("t", "y", mask, keys="o", weights="u"), inputs=f"float[B,T,{WIDTH}] t", outputs=f"float[B,T,{WIDTH}] y"
    )
    result = made_by(source, target)
    assert (why_not(result) == "") is masked
    before, after = runner(ir.from_proto(source)), runner(result.model)
    for pattern in PATTERNS if masked else ["ones"]:
        given = feeds(source, 3, 7, pattern) | {
            "t": np.random.default_rng(1).standard_normal((3, 4, WIDTH)).astype("f")
        }
        rows = (given["m"] != 0).any(1)
        agree_on(rows, before(given)["y"], after(given)["y"], what=pattern)


@TARGETS
def test_two_sequences_each_with_its_own_padding(target: str) -> None:
    decoder = (
        "dm = Cast<to=9>(n)\n dp = Unsqueeze(dm, axes12)\n"
        + attend("t", "d", "dp", weights="u")
        + attend("d", "y", keys="o", weights="w")
    )
    source = model(decoder, inputs=f"float[B,T,{WIDTH}] t, int64[B,T] n", outputs=f"float[B,T,{WIDTH}] y")
    result = made_by(source, target)
    assert why_not(result) == ""
    assert sum("padding is left out" in site.why for site in result.sites) == 2
    before, after = runner(ir.from_proto(source)), runner(result.model)
    random = np.random.default_rng(3)
    for pattern in PATTERNS[:5]:
        given = feeds(source, 3, 7, pattern) | {
            "t": random.standard_normal((3, 5, WIDTH)).astype("f"),
            "n": feeds(source, 3, 5, "holes")["m"],
        }
        actual = after(given)["y"]
        agree_on(given["n"] != 0, before(given)["y"], actual, what=pattern)
        assert not actual[given["n"] == 0].any()
