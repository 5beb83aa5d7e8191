"""No mask is taken for its neighbour: each graph is read as exactly what it is, as Dense, or not at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from maskport.export import inspect
from maskport.models import Mask
from onnx import numpy_helper

from .attention_text import ADD, attention

PADDING = "m4 = Unsqueeze(m, key_axes)"
ROWS = "m4 = Unsqueeze(m, query_axes)"
INVERTED = "mf = Cast<to=1>(m4)\n i = Sub(f1, mf)"


@dataclass(frozen=True)
class Neighbour:
    """A graph, and what it is: a mask's text, or a part of the reason why it is none.

    Attributes
    ----------
    body, after, inputs : str
        As of :func:`.attention_text.attention`.
    mask, reason : str or None
        What is lifted, or why nothing is.
    bias : str or None
        What is added.
    assumes : tuple of str
        Inputs that are taken for 0 or 1.
    """

    body: str
    mask: str | None = None
    reason: str | None = None
    bias: str | None = None
    assumes: tuple[str, ...] = ()
    inputs: str = "int64[B,S] m"
    after: str = "y = MatMul(w, v)"


def is_(mask: str, body: str, **more: object) -> Neighbour:
    return Neighbour(body, mask, **more)  # type: ignore[arg-type]


def isnt(reason: str, body: str, **more: object) -> Neighbour:
    return Neighbour(body, None, reason, **more)  # type: ignore[arg-type]


TRIANGLES = {
    "causal": is_("causal", "c = GreaterOrEqual(queries, keys)"),
    "causal, additive": is_("causal", f"c = GreaterOrEqual(queries, keys)\n {ADD}"),
    "strict": is_("causal(past - 1)", "c = Greater(queries, keys)"),
    "one more": is_("window(-1, 1)", "k1 = Sub(keys, one)\n c = GreaterOrEqual(queries, k1)"),
    "wrong direction": is_("window(0, -1)", "c = LessOrEqual(queries, keys)"),
    "inverted": is_("~causal", "c = GreaterOrEqual(queries, keys)\n masked = Where(c, inf, s)"),
    "tril": is_("causal", "o = ConstantOfShape<value: tensor = float[1] {1.0}>(square)\n"
                "t = Trilu<upper=0>(o)\n c = Cast<to=9>(t)"),
    "tril, one less": is_("causal(past - 1)", "o = ConstantOfShape<value: tensor = float[1] {1.0}>(square)\n"
                          "n = Neg(one)\n t = Trilu<upper=0>(o, n)\n c = Cast<to=9>(t)"),
    "triu of ones": is_("window(0, -1)", "o = ConstantOfShape<value: tensor = float[1] {1.0}>(square)\n"
                        "t = Trilu<upper=1>(o)\n c = Cast<to=9>(t)"),
    "triu of fills": is_("causal", "o = ConstantOfShape<value: tensor = float[1] {-inf}>(square)\n"
                         "t = Trilu<upper=1>(o, one)\n masked = Add(s, t)"),
    "triu of fills with the diagonal": is_("causal(past - 1)", "o = ConstantOfShape<value: tensor = float[1] {-inf}>"
                                           "(square)\n t = Trilu<upper=1>(o)\n masked = Add(s, t)"),
    "reversed keys": is_("dense(c)", "n = Sub(scalar, one)\n r = Sub(n, keys)\n c = GreaterOrEqual(queries, r)"),
    "every other key": is_("dense(c)", "r = Mod(keys, two)\n c = Equal(r, zero)"),
    "twice the distance": is_("dense(c)", "d = Mul(keys, two)\n c = LessOrEqual(d, queries)"),
    "window": is_("window(3, 3)", "d = Sub(queries, keys)\n a = Abs(d)\n c = LessOrEqual(a, three)"),
    "window, without its edge": is_("window(2, 2)", "d = Sub(queries, keys)\n a = Abs(d)\n c = Less(a, three)"),
    "window and causal": is_("window(3, 0)", "d = Sub(queries, keys)\n w1 = LessOrEqual(d, three)\n"
                             "c1 = GreaterOrEqual(d, zero)\n c = And(w1, c1)"),
    "window or causal": is_("window(-1, 3)", "d = Sub(keys, queries)\n w1 = LessOrEqual(d, three)\n"
                            "c1 = LessOrEqual(d, zero)\n c = Or(w1, c1)"),
    "outside a window": is_("~window(3, 3)", "d = Sub(queries, keys)\n a = Abs(d)\n c = Greater(a, three)"),
    "chunks": is_("chunked(3)", "a = Div(queries, three)\n b = Div(keys, three)\n c = Equal(a, b)"),
    "chunks of other sizes": is_("dense(c)", "a = Div(queries, three)\n b = Div(keys, two)\n c = Equal(a, b)"),
    "chunks, shifted": is_("dense(c)", "a0 = Add(queries, one)\n a = Div(a0, three)\n b0 = Add(keys, one)\n"
                           "b = Div(b0, three)\n c = Equal(a, b)"),
    "float positions": is_("window(3, 3)", "a = Cast<to=1>(queries)\n b = Cast<to=1>(keys)\n d = Sub(a, b)\n"
                           "e = Abs(d)\n t = Cast<to=1>(three)\n c = LessOrEqual(e, t)"),
    # From 2048 on neighbours are equal in half.
    "half positions": is_("dense(c)", "a = Cast<to=10>(queries)\n b = Cast<to=10>(keys)\n c = GreaterOrEqual(a, b)"),
}  # fmt: skip

PADDINGS = {
    "padding": is_("padding(m)", f"{PADDING}\n c = Cast<to=9>(m4)"),
    "rows for columns": is_("query_padding(m)", f"{ROWS}\n c = Cast<to=9>(m4)"),
    "rows for columns, additive": is_("query_padding(m)", f"{ROWS}\n {INVERTED}\n a = Mul(i, low)\n"
                                      "masked = Add(s, a)", assumes=("m",)),
    "heads for batch": is_("dense(c)", "m4 = Unsqueeze(m, e)\n c = Cast<to=9>(m4)".replace(
                           "m4", "e = Constant<value_ints=[0,2]>()\n m4", 1), inputs="int64[4,S] m"),
    "row 0 for every row": is_("dense(c)", "r = Gather<axis=0>(m, zero)\n c = Cast<to=9>(r)"),
    "another input": is_("padding(types)", "m4 = Unsqueeze(types, key_axes)\n c = Cast<to=9>(m4)",
                         inputs="int64[B,S] m, int64[B,S] types"),
    "two inputs": is_("padding(m) & padding(types)", "a = Mul(m, types)\n m4 = Unsqueeze(a, key_axes)\n"
                      "c = Cast<to=9>(m4)", inputs="int64[B,S] m, int64[B,S] types"),
    "one of two inputs": is_("dense(c)", "a = Add(m, types)\n m4 = Unsqueeze(a, key_axes)\n"
                             "c = Cast<to=9>(m4)", inputs="int64[B,S] m, int64[B,S] types"),
    "inverted": is_("padding(m)", f"{PADDING}\n {INVERTED}\n a = Mul(i, low)\n masked = Add(s, a)", assumes=("m",)),
    "not inverted": is_("~padding(m)", f"{PADDING}\n mf = Cast<to=1>(m4)\n a = Mul(mf, low)\n masked = Add(s, a)",
                        assumes=("m",)),
    "both masks": is_("causal & padding(m)", f"{PADDING}\n b = Cast<to=9>(m4)\n g = GreaterOrEqual(queries, keys)\n"
                      "c = And(b, g)"),
    "either mask": is_("causal | padding(m)", f"{PADDING}\n b = Cast<to=9>(m4)\n g = GreaterOrEqual(queries, keys)\n"
                       "c = Or(b, g)"),
    "added one after the other": is_("causal & padding(m)", f"{PADDING}\n {INVERTED}\n a = Mul(i, low)\n"
                                     "s1 = Add(s, a)\n o = ConstantOfShape<value: tensor = float[1] {-inf}>(square)\n"
                                     "t = Trilu<upper=1>(o, one)\n masked = Add(s1, t)", assumes=("m",)),
    "shifted": is_("dense(c)", "mm = Concat<axis=1>(m, m)\n e = Add(length, axis1)\n r = Slice(mm, axis1, e, axis1)\n"
                   "m4 = Unsqueeze(r, key_axes)\n c = Cast<to=9>(m4)"),
    "backwards": is_("dense(c)", "n = Neg(axis1)\n e = Constant<value_ints=[-9223372036854775807]>()\n"
                     "r = Slice(m, n, e, axis1, n)\n m4 = Unsqueeze(r, key_axes)\n c = Cast<to=9>(m4)"),
    "the first key in any case": is_("padding(m) | prefix(1)", f"{PADDING}\n b = Cast<to=9>(m4)\n"
                                     "z = Equal(keys, zero)\n c = Or(b, z)"),
    "a token": is_("padding(m != 1)", f"{PADDING}\n e = Equal(m4, one)\n c = Not(e)"),
    "only a token": is_("~padding(m != 3)", f"{PADDING}\n c = Equal(m4, three)"),
    "positive": is_("padding(m)", f"{PADDING}\n c = Greater(m4, zero)", assumes=("m",)),
    "small tokens": is_("dense(c)", f"{PADDING}\n c = Less(m4, seven)"),
    "above one": is_("dense(c)", f"{PADDING}\n c = Greater(m4, one)"),
    "halved": is_("dense(c)", f"{PADDING}\n h = Div(m4, two)\n c = Cast<to=9>(h)"),
    "lengths": is_("prefix(n)", "n4 = Unsqueeze(n, e)\n c = Less(keys, n4)".replace(
                   "n4", "e = Constant<value_ints=[1,2,3]>()\n n4", 1), inputs="int64[B] n"),
    "lengths of rows": is_("dense(c)", "n4 = Unsqueeze(n, e)\n c = Less(queries, n4)".replace(
                           "n4", "e = Constant<value_ints=[1,2,3]>()\n n4", 1), inputs="int64[B] n"),
    "lengths by head": is_("dense(c)", "n4 = Unsqueeze(n, key_axes)\n c = Less(keys, n4)", inputs="int64[4] n"),
    "segments": is_("segments(m)", f"{PADDING}\n r = Unsqueeze(m, query_axes)\n c = Equal(m4, r)"),
    "other segments": is_("~segments(m)", f"{PADDING}\n r = Unsqueeze(m, query_axes)\n e = Equal(m4, r)\n c = Not(e)"),
    "segments of two inputs": is_("segments(m, types)", f"{PADDING}\n r = Unsqueeze(types, query_axes)\n"
                                  "c = Equal(m4, r)", inputs="int64[B,S] m, int64[B,S] types"),
    "earlier segments": is_("dense(c)", f"{PADDING}\n r = Unsqueeze(m, query_axes)\n c = LessOrEqual(m4, r)"),
    "segments in half": is_("dense(c)", f"{PADDING}\n r = Unsqueeze(m, query_axes)\n a = Cast<to=10>(m4)\n"
                            "b = Cast<to=10>(r)\n c = Equal(a, b)"),
    "pairs": is_("adjacency(g)", "g4 = Unsqueeze(g, axis1)\n c = Cast<to=9>(g4)", inputs="int64[B,S,S] g"),
    "pairs, transposed": is_("dense(c)", "t = Transpose<perm=[0,2,1]>(g)\n g4 = Unsqueeze(t, axis1)\n"
                             "c = Cast<to=9>(g4)", inputs="int64[B,S,S] g"),
    "pairs by head": is_("dense(c)", "c = Cast<to=9>(g)", inputs="int64[B,4,S,S] g"),
    "a mask by head": is_("dense(g)", "masked = Where(g, s, inf)", inputs="bool[B,4,S,S] g"),
    "a distance by head": is_("dense(c)", "h = Constant<value_ints=[0,1,2,3]>()\n e = Constant<value_ints=[1,2]>()\n"
                              "h3 = Unsqueeze(h, e)\n d = Sub(queries, keys)\n c = LessOrEqual(d, h3)"),
    "a float mask": is_("padding(m)", f"{PADDING}\n c = Cast<to=9>(m4)", inputs="float[B,S] m"),
    "a float mask above a half": is_("padding(m)", f"{PADDING}\n h = Constant<value_float=0.5>()\n"
                                     "c = Greater(m4, h)", inputs="float[B,S] m", assumes=("m",)),
    "a float mask above two": is_("dense(c)", f"{PADDING}\n h = Constant<value_float=2.5>()\n c = Greater(m4, h)",
                                  inputs="float[B,S] m"),
    "dense but for causal": is_("causal & dense(g)", "l = GreaterOrEqual(queries, keys)\n c = And(l, g)",
                                inputs="bool[B,4,S,S] g"),
}  # fmt: skip

VALUES = {
    "queries": is_("dense(c)", "x = ReduceMax(q, axis3)\n c = Greater(x, f0)"),
    "keys": is_("dense(c)", "x = ReduceMax(k, axis3)\n t = Transpose<perm=[0,1,3,2]>(x)\n c = Greater(t, f0)"),
    "scores": is_("dense(c)", "c = Greater(s, f0)"),
}

ARITHMETIC = {
    "multiplied": isnt("multiplied by 'mf' (from Cast): a score of 0 is not masked",
                       f"{PADDING}\n mf = Cast<to=1>(m4)\n masked = Mul(s, mf)"),
    "multiplied by a triangle": isnt("a score of 0 is not masked", "c = GreaterOrEqual(queries, keys)\n"
                                     "t = Cast<to=1>(c)\n masked = Mul(s, t)"),
    "filled with zero": isnt("fills scores with 0", "c = GreaterOrEqual(queries, keys)\n masked = Where(c, s, f0)"),
    "filled with -10": isnt("fills scores with -10, which is too small",
                            "c = GreaterOrEqual(queries, keys)\n masked = Where(c, s, ten)"),
    "-10 added": isnt("a fill of -10 is too small to mask", "c = GreaterOrEqual(queries, keys)\n"
                      "a = Where(c, f0, ten)\n masked = Add(s, a)"),
    "-10 added to padding": is_("full", f"{PADDING}\n {INVERTED}\n a = Mul(i, ten)\n masked = Add(s, a)", bias="a"),
    "infinity times zero": isnt("become NaN: 0 times an infinite fill",
                                f"{PADDING}\n {INVERTED}\n a = Mul(i, inf)\n masked = Add(s, a)"),
    "a fill that half can't hold": isnt("become NaN", f"{PADDING}\n h = Cast<to=10>(m4)\n o = Cast<to=10>(f1)\n"
                                        "i = Sub(o, h)\n f = Constant<value_float=-1e9>()\n l = Cast<to=10>(f)\n"
                                        "a = Mul(i, l)\n s16 = Cast<to=10>(s)\n t = Add(s16, a)\n"
                                        "masked = Cast<to=1>(t)"),
    "scaled afterwards": isnt("masked scores are scaled", "c = GreaterOrEqual(queries, keys)\n"
                              "t = Where(c, s, inf)\n masked = Mul(t, scale)"),
    "added float": is_("full", "masked = Add(s, f)", inputs="float[B,1,S,S] f", bias="f"),
    "plus infinity": is_("full", "i = Neg(inf)\n c = GreaterOrEqual(queries, keys)\n a = Where(c, f0, i)\n"
                         "masked = Add(s, a)", bias="a"),
    "positions added": is_("full", "d = Sub(queries, keys)\n f = Cast<to=1>(d)\n masked = Add(s, f)", bias="f"),
    "a mask beside a bias": is_("causal", "d = Sub(queries, keys)\n f = Cast<to=1>(d)\n s1 = Add(s, f)\n"
                                "c = GreaterOrEqual(queries, keys)\n masked = Where(c, s1, inf)", bias="f"),
    "bounded and masked": is_("causal", "d = Div(s, f30)\n t = Tanh(d)\n u = Mul(t, f30)\n"
                              "c = GreaterOrEqual(queries, keys)\n masked = Where(c, u, inf)"),
    "masked, then bounded": isnt("scaled by 'd'", "c = GreaterOrEqual(queries, keys)\n t0 = Where(c, s, inf)\n"
                                 "d = Div(t0, f30)\n t = Tanh(d)\n masked = Mul(t, f30)"),
    "bounded by a tanh alone": isnt("a tanh that is not multiplied by its bound", "d = Div(s, f30)\n t = Tanh(d)\n"
                                    "masked = Identity(t)"),
    "an open tanh, then masked": isnt("a tanh of scores that is not multiplied", "d = Div(s, f30)\n t = Tanh(d)\n"
                                      "c = GreaterOrEqual(queries, keys)\n masked = Where(c, t, inf)"),
    "bounded twice": isnt("a tanh of scores over 30 is scaled by 30", "d = Div(s, f30)\n t = Tanh(d)\n"
                          "u = Mul(t, f30)\n masked = Mul(u, f30)"),
}  # fmt: skip

AFTERWARDS = {
    "multiplied": isnt("weights are multiplied by 'mf'", "masked = Identity(s)",
                       after=f"{PADDING}\n mf = Cast<to=1>(m4)\n w2 = Mul(w, mf)\n y = MatMul(w2, v)"),
    "set to zero": isnt("weights are set to zero by 'c'", "masked = Identity(s)",
                        after=f"{PADDING}\n c = Cast<to=9>(m4)\n w2 = Where(c, w, f0)\n y = MatMul(w2, v)"),
    "set to zero once more": is_("causal", "c = GreaterOrEqual(queries, keys)",
                                 after="w2 = Where(c, w, f0)\n y = MatMul(w2, v)"),
    "set to zero elsewhere": isnt("weights are set to zero by 'd'", "c = GreaterOrEqual(queries, keys)",
                                  after="d = Greater(queries, keys)\n w2 = Where(d, w, f0)\n y = MatMul(w2, v)"),
    "rows set to zero": is_("causal & query_padding(m)", "c = GreaterOrEqual(queries, keys)",
                            after=f"{ROWS}\n d = Cast<to=9>(m4)\n w2 = Where(d, w, f0)\n y = MatMul(w2, v)"),
    "set to one": isnt("puts 'f1' (from Constant) for weights", "c = GreaterOrEqual(queries, keys)",
                       after="w2 = Where(c, w, f1)\n y = MatMul(w2, v)"),
    "a guard of NaN": is_("padding(m)", f"{PADDING}\n c = Cast<to=9>(m4)",
                          after="n = IsNaN(w)\n w2 = Where(n, f0, w)\n y = MatMul(w2, v)"),
    "halved": isnt("weights are multiplied by 'h'", "masked = Identity(s)",
                   after="h = Constant<value_float=0.5>()\n w2 = Mul(w, h)\n y = MatMul(w2, v)"),
    "over heads": isnt("varies with queries and keys", "masked = Transpose<perm=[0,2,3,1]>(s)",
                       after="t = Transpose<perm=[0,3,1,2]>(w)\n y = MatMul(t, v)"),
    "over queries": isnt("varies with queries and keys", "masked = Transpose<perm=[0,1,3,2]>(s)",
                         after="t = Transpose<perm=[0,1,3,2]>(w)\n y = MatMul(t, v)"),
    "two products": isnt("joins scores of several products", "t = Transpose<perm=[0,1,3,2]>(pk)\n r = MatMul(q, t)\n"
                         "u = Mul(r, scale)\n masked = Concat<axis=-1>(s, u)",
                         inputs="float[B,4,P,8] pk, float[B,4,P,8] pv",
                         after="vv = Concat<axis=2>(v, pv)\n y = MatMul(w, vv)"),
    "a sink that keeps its column": isnt("lose columns that are no sink's, or keep a sink's",
                                         "e = Slice(s, axis0, axis1, axis3)\n z = Mul(e, f0)\n"
                                         "masked = Concat<axis=-1>(s, sink)",
                                         inputs="float[B,4,S,1] sink, float[B,4,1,8] pv",
                                         after="vv = Concat<axis=2>(v, pv)\n y = MatMul(w, vv)"),
}  # fmt: skip

ALL = {
    f"{family}: {name}": case
    for family, cases in {
        "triangle": TRIANGLES,
        "padding": PADDINGS,
        "values": VALUES,
        "arithmetic": ARITHMETIC,
        "afterwards": AFTERWARDS,
    }.items()
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
def test_is_what_it_is(name: str, check: bool) -> None:
    """Also without the run that would refuse a wrong mask: the interpreter must not need it."""
    case = ALL[name]
    model = attention(case.body, case.inputs, after=case.after)
    onnx.checker.check_model(model, full_check=True)
    report = inspect(model, check=check)
    if case.mask is None:
        assert report.sites == ()
        (unlifted,) = report.unlifted
        assert case.reason is not None
        assert case.reason in unlifted.reason
        return
    assert report.unlifted == ()
    (site,) = report.sites
    assert site.mask == Mask.parse(case.mask)
    assert site.bias == case.bias
    assert {name for name, _ in site.assumes} == set(case.assumes)
    assert site.verified == check


def _baked(array: np.ndarray, body: str, **more: str) -> onnx.ModelProto:
    model = attention(body, **more)
    model.graph.initializer.append(numpy_helper.from_array(array, "baked"))
    return model


SLICED = "z = Constant<value_ints=[0,0]>()\n a = Constant<value_ints=[0,1]>()\n c = Slice(baked, z, square, a)"
SQUARE = np.ones((64, 64), bool)


@pytest.mark.parametrize(
    ("array", "mask"),
    [
        (np.tril(SQUARE), "causal"),
        (np.triu(SQUARE), "window(0, -1)"),
        (np.tril(SQUARE, 1), "window(-1, 1)"),
        (np.tril(SQUARE, -1), "causal(past - 1)"),
        (np.tril(np.triu(SQUARE, -5), 2), "window(5, 2)"),
        (~np.tril(np.triu(SQUARE, -5), 2), "~window(5, 2)"),
        (np.eye(64, dtype=bool), "window(0, 0)"),
        (SQUARE, "full"),
        (~SQUARE, "~full"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_baked_mask_is_what_its_values_say(array: np.ndarray, mask: str) -> None:
    (site,) = inspect(_baked(array, SLICED)).sites
    assert site.mask == Mask.parse(mask)
    assert site.verified


@pytest.mark.parametrize(("q", "k"), [(0, 1), (5, 5), (5, 6), (63, 0), (63, 63), (0, 63), (40, 12)])
def test_a_baked_mask_with_one_entry_changed_is_not_causal(q: int, k: int) -> None:
    array = np.tril(SQUARE)
    array[q, k] ^= True
    for check in (True, False):
        (site,) = inspect(_baked(array, SLICED), check=check).sites
        assert site.mask != Mask.parse("causal")
        # A corner is a band of its own, which shows at lengths that the array doesn't have.
        corner = abs(q - k) == 63
        assert site.verified == check or corner
        assert site.mask == Mask.parse("dense(c)") or (corner and (site.mask.dense(64, 64) == array).all())


def test_a_baked_array_with_nan_is_no_mask() -> None:
    array = np.where(np.tril(SQUARE), 0, np.nan).astype(np.float32)
    body = SLICED.replace("c = Slice", "a2 = Slice") + "\n masked = Add(s, a2)"
    report = inspect(_baked(array, body))
    assert [site.mask for site in report.sites] in ([], [Mask.parse("full")])
    assert not report.sites or report.sites[0].bias is not None


@pytest.mark.parametrize(
    ("extend", "mask"),
    [
        # Positions after the buffer's end read its last row and column.
        ("l = Constant<value_int=7>()\n a = Min(queries, l)\n b = Min(keys, l)\n"
         "sh = Expand(a, square)\n bh = Expand(b, square)\n u1 = Unsqueeze(sh, axis2)\n u2 = Unsqueeze(bh, axis2)\n"
         "ij = Concat<axis=2>(u1, u2)\n c = GatherND(baked, ij)", "dense(c)"),
        # Positions after its end are not attended.
        ("e = Constant<value_ints=[8,8]>()\n p0 = Sub(square, e)\n z2 = Constant<value_ints=[0,0]>()\n"
         "p1 = Max(p0, z2)\n pads = Concat<axis=0>(z2, p1)\n bi = Cast<to=7>(baked)\n g = Pad(bi, pads, zero)\n"
         "a = Constant<value_ints=[0,1]>()\n d = Slice(g, z2, square, a)\n c = Cast<to=9>(d)", "dense(c)"),
    ],
    ids=["clamped", "padded"],
)  # fmt: skip
def test_a_window_buffer_shorter_than_the_length(extend: str, mask: str) -> None:
    buffer = np.tril(np.triu(np.ones((8, 8), bool), -3))
    for check in (True, False):
        report = inspect(_baked(buffer, extend), check=check)
        assert report.unlifted == ()
        (site,) = report.sites
        assert site.mask != Mask.parse("window(3, 0)")
        assert site.mask == Mask.parse(mask) or site.verified


NO_ATTENTION = {
    "classifier": """g (float[B,16] x) => (float[B,10] y)
        { l = MatMul(x, wt) y = Softmax<axis=-1>(l) }""",
    "ctc": """g (float[B,S,16] x) => (float[B,S,10] y)
        { l = MatMul(x, wt) y = Softmax<axis=-1>(l) }""",
    "gating": """g (float[B,S,16] x, float[B,S,4,16] experts) => (float[B,S,1,16] y)
        {
          a = Constant<value_ints=[2]>() l = MatMul(x, wt) p = Softmax<axis=-1>(l) u = Unsqueeze(p, a)
          y = MatMul(u, experts) }""",
    "pooling": """g (float[B,S,16] x) => (float[B,1,16] y)
        {
          l = MatMul(x, wt) t = Transpose<perm=[0,2,1]>(l) p = Softmax<axis=-1>(t) y = MatMul(p, x) }""",
    "class tokens": """g (float[B,C,16] x, float[B,C,16] z) => (float[B,C,C] y) {
          t = Transpose<perm=[0,2,1]>(z) l = MatMul(x, t) y = Softmax<axis=-1>(l) }""",
}


@pytest.mark.parametrize("name", NO_ATTENTION)
def test_a_softmax_that_is_no_attention(name: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {NO_ATTENTION[name]}')
    width = {"gating": 4, "pooling": 1}.get(name, 10)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((16, width), np.float32), "wt"))
    report = inspect(model)
    assert report.sites == ()
    assert len(report.unlifted) == 1
