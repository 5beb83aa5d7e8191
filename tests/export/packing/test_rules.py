"""Operators that treat each token alike run on real tokens alone, and no other does: each with its near misses."""

from __future__ import annotations

import pytest

from .token_models import agree, made_by, model, operators, why_not

SPLIT = "hs = Reshape(o, split)\n"
HEADS = SPLIT + "ht = Transpose<perm=[0,2,1,3]>(hs)\n"
JOIN = "\nhb = Transpose<perm=[0,2,1,3]>(hr)\n y = Reshape(hb, merge)"
TURN, BACK = "turned = Transpose<perm=[0,2,1]>(o)\n", "\n y = Transpose<perm=[0,2,1]>(tn)"
# By what they show: nodes from `o` to `y`, both [B, S, 16].
PACKS = {
    "elementwise with a vector": "y = Add(o, vector)",
    "elementwise with itself": "y = Mul(o, o)",
    "elementwise with what is the same for every row": "pf = Cast<to=1>(p)\n y = Add(o, pf)",
    "elementwise with what is the same for every token of a row": """
        first = Slice(x, a0, a1, a1)
        y = Add(o, first)""",
    "elementwise with another input of the tokens": "y = Add(o, x)",
    "elementwise with the mask": """
        mf = Cast<to=1>(m)
        mu = Unsqueeze(mf, a2)
        y = Mul(o, mu)""",
    "a choice by the mask": "su = Unsqueeze(shown, a2)\n y = Where(su, o, f0)",
    "a product with weights": "y = MatMul(o, matrix)",
    "a product with weights of rank 3": "cu = Unsqueeze(matrix, a0)\n y = MatMul(o, cu)",
    "layer norm": "y = LayerNormalization<axis=-1>(o, vector, vector)",
    "layer norm by hand": """
        mean = ReduceMean(o, last)
        off = Sub(o, mean)
        square = Mul(off, off)
        variance = ReduceMean(square, last)
        root = Sqrt(variance)
        y = Div(off, root)""",
    "a norm of a head": SPLIT + "hn = LayerNormalization<axis=-1>(hs, hw)\n y = Reshape(hn, merge)",
    "softmax over the width": "y = Softmax<axis=-1>(o)",
    "softmax over the heads": SPLIT + "hn = Softmax<axis=2>(hs)\n y = Reshape(hn, merge)",
    "gelu": "y = Gelu(o)",
    "fast gelu": "y = com.microsoft.FastGelu(o)",
    "a skip norm": "y, u1, u2, u3 = com.microsoft.SkipLayerNormalization(o, x, vector, vector)",
    "rows of all tokens": "flat = Reshape(o, rows)\n ff = MatMul(flat, matrix)\n y = Reshape(ff, lengths)",
    "Gemm on rows of all tokens": """
        flat = Flatten<axis=2>(o)
        ff = Gemm<transB=1>(flat, matrix, vector)
        y = Reshape(ff, lengths)""",
    "heads and back": HEADS + "hr = Neg(ht)" + JOIN,
    "the sequence in front": "turned = Transpose<perm=[1,0,2]>(o)\n tn = Neg(turned)\n y = Transpose<perm=[1,0,2]>(tn)",
    "split and joined": "l, r = Split<axis=-1, num_outputs=2>(o)\n y = Concat<axis=2>(r, l)",
    "a part of the width": "h1 = Slice(o, a0, eight, a2)\n y = Concat<axis=-1>(h1, h1)",
    "one head": SPLIT + "hg = Gather<axis=2>(hs, i0)\n y = Concat<axis=-1>(hg, hg)",
    "a table": """
        one = Gather<axis=2>(o, i0)
        positive = Greater(one, f0)
        index = Cast<to=7>(positive)
        y = Gather(matrix, index)""",
    "turned heads": HEADS + "hr = RotaryEmbedding(ht, cosines, sines, ids)" + JOIN,
    "the shape of it": "os = Shape(o)\n flat = Reshape(o, rows)\n fn = Neg(flat)\n y = Reshape(fn, os)",
    "expanded": "ou = Unsqueeze(o, a2)\n twice = Expand(ou, pair)\n y = ReduceMean<keepdims=0>(twice, a2)",
}  # fmt: skip
# What looks across tokens, or could: never on real tokens alone.
NEAR_MISSES = {
    "softmax over the sequence": "y = Softmax<axis=1>(o)",
    "softmax over the batch": "y = Softmax<axis=0>(o)",
    "layer norm over the sequence, too": "w2 = Expand(f1, tail)\n y = LayerNormalization<axis=1>(o, w2)",
    "a mean over the sequence": "mean = ReduceMean(o, a1)\n y = Sub(o, mean)",
    "a mean over the batch": "mean = ReduceMean(o, a0)\n y = Sub(o, mean)",
    "a mean of all": "mean = ReduceMean(o)\n y = Sub(o, mean)",
    "a running sum": "y = CumSum(o, i1)",
    "the sequence as the width": TURN + "tn = Softmax<axis=-1>(turned)" + BACK,
    "one row for each batch": "wide = Flatten<axis=1>(o)\n s = Softmax<axis=-1>(wide)\n y = Reshape(s, lengths)",
    "shifted by one": """
        before = Slice(o, a0, last, a1)
        first = Slice(o, a0, a1, a1)
        y = Concat<axis=1>(first, before)""",
    "reversed": "y = Slice(o, last, most, a1, last)",
    "products of tokens": TURN + "oo = MatMul(o, turned)\n y = MatMul(oo, o)",
    "weights of positions": "d = Cast<to=1>(distance)\n y = MatMul(d, o)",
    "a convolution": TURN + "tn = Conv<pads=[1,1]>(turned, kernel)" + BACK,
    "the top of the sequence": "t, i = TopK<axis=1>(o, length)\n y = Identity(t)",
    "the batch and the sequence swapped by a reshape": """
        swapped = Concat<axis=0>(length, batch, width)
        r = Reshape(o, swapped)
        s = Softmax<axis=1>(r)
        y = Reshape(s, lengths)""",
}  # fmt: skip
EXTRA = """
  eight = Constant<value_ints=[8]>()
  pair = Constant<value_ints=[1, 1, 2, 1]>()
  width = Constant<value_ints=[16]>()
  tail = Concat<axis=0>(length, width)
  most = Constant<value_ints=[-9223372036854775807]>()
  zeros = Mul(m, i0)
  ids = Add(zeros, places)
  cosines = Cos(turns)
  sines = Sin(turns)
  hw = Constant<value_floats=[1., 2., 1., 2., 1., 2., 1., 2.]>()
"""


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("what", PACKS)
def test_it_runs_on_real_tokens(what: str, target: str) -> None:
    source = model(EXTRA + PACKS[what])
    result = made_by(source, target)
    assert why_not(result) == ""
    (site,) = result.sites
    assert "padding is left out" in site.why
    agree(source, result, zero=["y"])
    # One scatter, at the output: nothing before it was put back to its place.
    assert operators(result).count("ScatterND") == 1


@pytest.mark.parametrize("what", NEAR_MISSES)
def test_it_does_not_run_on_real_tokens(what: str) -> None:
    source = model(EXTRA + NEAR_MISSES[what])
    result = made_by(source)
    assert "looks across the tokens" in why_not(result)
    # It reads padding in the source, too.
    agree(source, result, patterns=["ones"])


@pytest.mark.parametrize("what", ["bool", "int32", "uint8", "float"])
def test_masks_of_any_type(what: str) -> None:
    source = model("y = Neg(o)", mask_type=what)
    for target in ("cpu", "cuda"):
        result = made_by(source, target)
        assert why_not(result) == ""
        agree(source, result, zero=["y"])


@pytest.mark.parametrize(
    "before", ["h = Softmax<axis=1>(x)", "h = CumSum(x, i1)", "s = ReduceMean(x, a1)\n h = Sub(x, s)"]
)
def test_what_comes_before_attention_may_look_across_tokens(before: str) -> None:
    """It is computed on all places, as in the source, and its tokens are picked."""
    source = model("y = Neg(o)", before=before)
    result = made_by(source)
    assert why_not(result) == ""
    agree(source, result, zero=["y"])


def test_what_comes_before_attention_and_treats_tokens_alike_runs_on_tokens() -> None:
    source = model(before="n = LayerNormalization<axis=-1>(x, vector)\n g = Gelu(n)\n h = MatMul(g, matrix)")
    result = made_by(source)
    picked = [node for node in result.model.graph if node.op_type == "GatherND" and node.inputs[0].name == "x"]
    assert len(picked) == 1
    agree(source, result, zero=["y"])


def test_a_batch_and_a_sequence_that_are_the_same_number_are_not_mixed_up() -> None:
    source = model("turned = Transpose<perm=[1,0,2]>(o)\n y = Softmax<axis=1>(turned)")
    assert "looks across the tokens" in why_not(made_by(source))
