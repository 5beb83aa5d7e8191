"""What a mask is to its users: literal matrices, text, pictures, tensors, FlexAttention, ONNX."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from maskport.models import (
    Adjacency,
    Affine,
    Causal,
    Chunked,
    Dense,
    Full,
    K,
    KeyPadding,
    Mask,
    Prefix,
    Q,
    QueryPadding,
    Row,
    Segments,
    Window,
    past,
)

from .mask_strategies import cases, masks


def matrix(*rows: str) -> list[list[bool]]:
    return [[letter == "1" for letter in row] for row in rows]


IDS = np.array([[5, 7, 1, 0]])
DOCUMENTS = np.array([[3, 3, 8, 8]])

# mask, (q_len, k_len, past), tensors, the matrix of batch row 0 and head 0
LITERAL = {
    "full": (Full(), (2, 3, 0), {}, matrix("111", "111")),
    "causal": (Causal(), (3, 3, 0), {}, matrix("100", "110", "111")),
    "causal, more keys than queries, is top-left": (Causal(), (2, 4, 0), {}, matrix("1000", "1100")),
    "causal with past": (Causal(), (2, 4, 2), {}, matrix("1110", "1111")),
    "causal, bottom-right": (Causal(K - Q), (2, 4, 0), {}, matrix("1110", "1111")),
    "causal by number ignores past": (Causal(0), (2, 4, 2), {}, matrix("1000", "1100")),
    "strictly causal": (Causal(past - 1), (3, 3, 0), {}, matrix("000", "100", "110")),
    "causal by row": (Causal(Row("n") - Q), (2, 4, 0), {"n": np.array([3])}, matrix("1100", "1110")),
    "window": (Window(1, 0), (4, 4, 0), {}, matrix("1000", "1100", "0110", "0011")),
    "window, both sides": (Window(1, 1), (3, 4, 0), {}, matrix("1100", "1110", "0111")),
    "window, right only": (Window(0, -1), (3, 3, 0), {}, matrix("111", "011", "001")),
    "window with past": (Window(1, 0), (2, 4, 2), {}, matrix("0110", "0011")),
    "window by row": (Window(0, 0, "n"), (2, 4, 0), {"n": np.array([2])}, matrix("0010", "0001")),
    "chunked": (Chunked(2), (4, 4, 0), {}, matrix("1100", "1100", "0011", "0011")),
    "chunked with past": (Chunked(2), (2, 4, 1), {}, matrix("1100", "0011")),
    "prefix": (Prefix("n"), (2, 4, 0), {"n": np.array([3])}, matrix("1110", "1110")),
    "prefix + 1": (Prefix("n") + 1, (2, 4, 0), {"n": np.array([1])}, matrix("1100", "1100")),
    "padding": (KeyPadding("m"), (2, 4, 0), {"m": np.array([[1, 0, 1, 0]])}, matrix("1010", "1010")),
    "padding of bool": (KeyPadding("m"), (1, 2, 0), {"m": np.array([[False, True]])}, matrix("01")),
    "padding of ids": (KeyPadding("ids", pad=1), (2, 4, 0), {"ids": IDS}, matrix("1101", "1101")),
    "query padding": (QueryPadding("ids"), (2, 4, 2), {"ids": IDS}, matrix("1111", "0000")),
    "segments": (Segments("d"), (4, 4, 0), {"d": DOCUMENTS}, matrix("1100", "1100", "0011", "0011")),
    "segments with past": (Segments("d"), (2, 4, 1), {"d": DOCUMENTS}, matrix("1100", "0011")),
    "segments of two": (
        Segments("d", "q"),
        (2, 4, 0),
        {"d": DOCUMENTS, "q": np.array([[8, 4]])},
        matrix("0011", "0000"),
    ),
    "adjacency": (Adjacency("g"), (2, 2, 0), {"g": np.array([[[0, 2], [1, 0]]])}, matrix("01", "10")),
    "dense": (Dense("d"), (2, 2, 0), {"d": np.array([[True, False], [False, False]])}, matrix("10", "00")),
    "dense of one element": (Dense("d"), (2, 2, 0), {"d": np.array(True)}, matrix("11", "11")),
    "and": (Causal() & Window(1, 1), (3, 3, 0), {}, matrix("100", "110", "011")),
    "or": (Causal() | Window(0, 1), (3, 3, 0), {}, matrix("110", "111", "111")),
    "not": (~Causal(), (3, 3, 0), {}, matrix("011", "001", "000")),
}
literal = pytest.mark.parametrize(("mask", "sizes", "tensors", "expected"), LITERAL.values(), ids=LITERAL)


def expand(attend: object, batch: int, heads: int, q_len: int, k_len: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(attend), (batch, heads, q_len, k_len))


@literal
def test_literal(mask: Mask, sizes: tuple[int, int, int], tensors: dict, expected: list) -> None:
    attend = mask.dense(*sizes, **tensors)
    assert attend.dtype == bool
    assert attend.ndim == 4
    assert expand(attend, 1, 1, *sizes[:2])[0, 0].tolist() == expected


@literal
def test_literal_in_torch(mask: Mask, sizes: tuple[int, int, int], tensors: dict, expected: list) -> None:
    torch = pytest.importorskip("torch")
    attend = mask.dense(*sizes, device="cpu", **{name: torch.as_tensor(value) for name, value in tensors.items()})
    assert attend.dtype == torch.bool
    assert attend.dim() == 4
    assert attend.expand(1, 1, *sizes[:2])[0, 0].tolist() == expected


@literal
def test_literal_in_flex_attention(mask: Mask, sizes: tuple[int, int, int], tensors: dict, expected: list) -> None:
    torch = pytest.importorskip("torch")
    from torch.nn.attention.flex_attention import create_block_mask, create_mask

    q_len, k_len, past_len = sizes
    mask_mod = mask.mask_mod(past_len, q_len=q_len, k_len=k_len, **tensors)
    value = mask_mod(0, 0, 0, 0)
    assert isinstance(value, torch.Tensor)
    assert value.dtype == torch.bool
    # Two batch rows and heads: every tensor here has one, so its axes are clamped.
    attend = create_mask(mask_mod, 2, 3, q_len, k_len, device="cpu")
    assert attend.shape == (2, 3, q_len, k_len)
    assert all(attend[b, h].tolist() == expected for b in range(2) for h in range(3))
    blocks = create_block_mask(mask_mod, 2, 3, q_len, k_len, device="cpu", BLOCK_SIZE=1)
    assert blocks.to_dense()[1, 2].bool().tolist() == expected


@literal
def test_literal_in_onnx(mask: Mask, sizes: tuple[int, int, int], tensors: dict, expected: list) -> None:
    attend = run_onnx(mask, *sizes, tensors)
    assert expand(attend, 1, 1, *sizes[:2])[0, 0].tolist() == expected


def run_onnx(mask: Mask, q_len: int, k_len: int, past_len: int, tensors: dict) -> np.ndarray:
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    tensors = {
        name: value.reshape((1,) * (4 - value.ndim) + value.shape) if spec.dims == "bhqk" else value
        for (name, spec), value in zip(mask.tensors.items(), (tensors[name] for name in mask.tensors), strict=True)
    }
    model = mask.to_onnx(dtypes={name: value.dtype for name, value in tensors.items()})
    onnx.checker.check_model(model, full_check=True)
    lengths = {"q_len": np.array(q_len), "k_len": np.array(k_len), "past": np.array(past_len)}
    return ReferenceEvaluator(model).run(None, {**lengths, **tensors})[0]


def random_tensors(mask: Mask, q_len: int, k_len: int, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    length = {"b": 2, "h": 3, "q": q_len, "k": k_len}
    tensors = {}
    for name, spec in mask.tensors.items():
        values = random.integers(0, 3 if spec.rank > 1 else k_len + 1, [length[axis] for axis in spec.dims])
        tensors[name] = values > 0 if spec.dims == "bhqk" else values
    return tensors


@settings(deadline=None, max_examples=60)
@given(masks(), st.integers(0, 2), st.integers(0, 99))
def test_onnx_and_torch_agree_with_dense(mask: Mask, past_len: int, seed: int) -> None:
    torch = pytest.importorskip("torch")
    q_len, k_len = 4, 7
    tensors = random_tensors(mask, q_len, k_len, seed)
    attend = expand(mask.dense(q_len, k_len, past_len, **tensors), 2, 3, q_len, k_len)
    assert (expand(run_onnx(mask, q_len, k_len, past_len, tensors), 2, 3, q_len, k_len) == attend).all()
    in_torch = mask.dense(q_len, k_len, past_len, device="cpu", **{n: torch.as_tensor(t) for n, t in tensors.items()})
    assert (expand(in_torch, 2, 3, q_len, k_len) == attend).all()


@settings(deadline=None, max_examples=40)
@given(cases(count=2), st.integers(0, 99))
def test_dense_of_a_combination_is_the_combination_of_denses(drawn: list, seed: int) -> None:
    (one, _), (other, _) = drawn
    tensors = random_tensors(one & other, 4, 7, seed)

    def dense(mask: Mask) -> np.ndarray:
        return expand(mask.dense(4, 7, 2, **{name: tensors[name] for name in mask.tensors}), 2, 3, 4, 7)

    assert (dense(one & other) == dense(one) & dense(other)).all()
    assert (dense(one | other) == dense(one) | dense(other)).all()
    assert (dense(~one) == ~dense(one)).all()
    assert (dense(one.simplify()) == dense(one)).all() if one.simplify().tensors.keys() == one.tensors.keys() else True


TEXT = {
    "full": Full(),
    "~full": ~Full(),
    "causal": Window(-1, 0),
    "~causal": ~Causal(),
    "causal(past - 1)": Causal(past - 1),
    "causal(0)": Causal(0),
    "causal(K - Q)": Causal(K - Q),
    "causal(nonpad - Q)": Causal(Row("nonpad") - Q),
    "window(5, 0)": Causal() & Window(5, 9),
    "window(-1, 3)": Causal(past + 3),
    "window(5, 0) & padding(attention_mask)": KeyPadding("attention_mask") & Window(5, 0),
    "window(2, 1, nonpad - Q)": Window(2, 1, Row("nonpad") - Q),
    "window(0, 2, past + 1)": Window(-1, 3) & ~Causal(),
    "chunked(4)": Chunked(4) & Window(3, 3),
    "causal & chunked(4)": Chunked(4) & Window(3, 0),
    "window(0, 0)": Chunked(1),
    "prefix(seqlens_k + 1)": Prefix("seqlens_k") + 1,
    "prefix(past + n)": Prefix(Row("n") + past),
    "prefix(5)": Prefix(5),
    "padding(input_ids != 1)": KeyPadding("input_ids", pad=1),
    "padding(x != -100)": KeyPadding("x", -100),
    "query_padding(m)": QueryPadding("m"),
    "segments(doc)": Segments("doc"),
    "segments(k_doc, q_doc)": Segments("k_doc", "q_doc"),
    "adjacency(graph)": Adjacency("graph"),
    'dense("/enc/Where_0")': Dense("/enc/Where_0"),
    'padding("in put" != 2)': KeyPadding("in put", 2),
    'padding("lambda")': KeyPadding("lambda"),
    'prefix("Q" + 1)': Prefix(Row("Q") + 1),
    r'dense("a\"b\\cé")': Dense('a"b\\cé'),
    "causal & (padding(a) | padding(b))": (KeyPadding("a") | KeyPadding("b")) & Causal(),
    "causal | prefix(n) & segments(d)": Causal() | Prefix("n") & Segments("d"),
    "segments(d) & ~window(5, 2)": ~Window(5, 2) & Segments("d"),
    "padding(m) & ~segments(d)": ~(Segments("d") | ~KeyPadding("m")),
}


@pytest.mark.parametrize(("text", "mask"), TEXT.items())
def test_text(text: str, mask: Mask) -> None:
    if text != "prefix(past + n)":
        assert str(mask) == text
    assert Mask.parse(text) == mask


@settings(deadline=None)
@given(masks())
@example(~Window(3, 2) & (Causal() | Chunked(3)))
def test_text_round_trip(mask: Mask) -> None:
    text = str(mask)
    assert Mask.parse(text) == mask
    assert str(Mask.parse(text)) == text
    assert eval(repr(mask)) == mask


@settings(deadline=None)
@given(st.text(min_size=1))
@example("past")
@example("a\nb")
@example("\N{KELVIN SIGN}")
def test_any_name_survives_text(name: str) -> None:
    if name in ("q_len", "k_len", "past", "device"):
        with pytest.raises(ValueError, match="none of q_len"):
            KeyPadding(name)
        return
    mask = KeyPadding(name, 3) & Segments(name + "2", name + "3") & Prefix(Row(name + "4") + 1)
    parsed = Mask.parse(str(mask))
    assert parsed == mask
    assert list(parsed.tensors) == list(mask.simplify().tensors)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read the mask ''"),
        ("causal &", "cannot read the mask"),
        ("causual", "cannot read 'causual'"),
        ("causal and padding(m)", "cannot read 'causal and padding"),
        ("causal + window(1, 2)", "cannot read 'causal \\+ window"),
        ("window(1)", "window\\(1\\)"),
        ("window(1, 2.5)", "cannot read '2.5'"),
        ("window(-2, 0)", "at least -1; got -2"),
        ("window(past, 0)", "left of Window is an integer"),
        ("chunked(0)", "at least 1; got 0"),
        ("padding(a == 1)", "cannot read 'a == 1'"),
        ("padding(a != b)", "cannot read 'b'"),
        ("padding(a, pad=1)", "cannot read 'padding\\(a, pad=1\\)'"),
        ("prefix(2 * n)", "cannot read '2 \\* n'"),
        ("causal(Q)", "subtract `Q`"),
        ("causal(n + n)", "each once; got 2\\*n"),
        ("__import__('os')", "cannot read"),
        ("causal.dense(3)", "cannot read"),
        ("(" * 5000 + "causal" + ")" * 5000, "cannot read"),
        ("~" * 50000 + "causal", "cannot read"),
        ("\x00", "cannot read"),
    ],
)
def test_parse_shows_what_it_could_not_read(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mask.parse(text)


def test_affine() -> None:
    assert str(Row("n") - Q + 2 - 3) == "n - Q - 1"
    assert str(3 - Q) == "3 - Q"
    assert str(-Q) == "-Q"
    assert str(past - past) == "0"
    assert str(K + past) == "past + K"
    assert repr(Row("a b") - Q) == "Row('a b') - Q"
    assert Row("n") + 1 == 1 + Row("n")
    assert hash(past + 0) == hash(past)
    assert Affine(2) == past + 2 - past
    with pytest.raises(TypeError, match="Row\\('nonpad'\\) - Q"):
        Causal(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"got past \+ 2\*K"):
        Causal(K + K + past)
    with pytest.raises(ValueError, match="non-empty"):
        Row("")


def test_draw() -> None:
    picture = (Causal() & KeyPadding("m")).draw(3, m=np.array([[1, 1, 0], [0, 1, 1]]))
    assert picture.splitlines() == [
        "b=0       b=1",
        "  0 1 2     0 1 2",
        "0 ■ · ·   0 · · ·",
        "1 ■ ■ ·   1 · ■ ·",
        "2 ■ ■ ·   2 · ■ ■",
    ]
    assert Full().draw(1, 2, past=1).splitlines() == ["  0 1", "0 ■ ■"]
    wide = Dense("d").draw(2, 20, d=np.ones((3, 2, 2, 20), bool))
    assert max(map(len, wide.splitlines())) <= 80
    assert wide.count("b=2, h=1") == 1


def test_tensors() -> None:
    mask = KeyPadding("m") & Segments("k", "q") | Prefix(Row("n") - Q) & QueryPadding("m") & Adjacency("g") & Dense("d")
    assert {name: (spec.dims, spec.rank) for name, spec in mask.tensors.items()} == {
        "m": ("bk", 2),
        "q": ("bq", 2),
        "k": ("bk", 2),
        "n": ("b", 1),
        "g": ("bqk", 3),
        "d": ("bhqk", 4),
    }
    assert mask.tensors["m"].shape == "bool or int [B, K]"
    assert Full().tensors == {}


def test_conjuncts() -> None:
    mask = KeyPadding("m") & Window(9, 3) & Causal() & (Segments("s") | Full())
    assert list(map(str, mask.conjuncts)) == ["window(9, 0)", "padding(m)"]
    assert (Causal() | KeyPadding("m")).conjuncts == (Causal() | KeyPadding("m"),)


@pytest.mark.parametrize(
    ("mask", "window"),
    [
        (Full(), (-1, -1)),
        (Causal(), (-1, 0)),
        (Causal(past - 3), (-1, 0)),
        (Window(5, 2) & KeyPadding("m"), (5, 2)),
        (Window(5, 2) | Window(1, 4), (5, 4)),
        (Chunked(4), (3, 3)),
        (Chunked(4) & Chunked(6) & Causal(), (3, 0)),
        (Chunked(8192) | Window(9000, -1), (9000, -1)),
        (Causal(0), (-1, 0)),
        (Prefix("n"), (-1, -1)),
        (Causal(Row("n") - Q), (-1, -1)),
        (~Full(), (0, 0)),
    ],
    ids=str,
)
def test_window(mask: Mask, window: tuple[int, int]) -> None:
    assert mask.window == window


def test_leaves() -> None:
    mask = (Causal() | Prefix("n")) & ~KeyPadding("m") & KeyPadding("o") & Window(9, 5)
    assert sorted(map(str, mask.leaves)) == ["causal", "padding(m)", "padding(o)", "prefix(n)", "window(9, 5)"]


def test_masks_are_values() -> None:
    mask = Causal() & KeyPadding("m")
    assert pickle.loads(pickle.dumps(mask)) == copy.deepcopy(mask) == mask
    with pytest.raises(AttributeError, match="immutable"):
        mask._expr = ()  # type: ignore[misc]
    with pytest.raises(TypeError, match="Causal\\(\\) & KeyPadding"):
        Mask()
    with pytest.raises(TypeError, match="join masks by &"):
        bool(mask)
    with pytest.raises(TypeError):
        mask & True  # type: ignore[operator]
    with pytest.raises(TypeError, match="only a Prefix"):
        Causal() + 1
    assert Prefix("n") - 2 == Prefix(Row("n") - 2)


M = np.ones((2, 5), np.int64)


@pytest.mark.parametrize(
    ("mask", "tensors", "error", "message"),
    [
        (KeyPadding("m"), {}, TypeError, r"`padding\(m\)` needs m \(bool or int \[B, K\]\); given: none"),
        (Causal(), {"m": M}, TypeError, "needs no tensor; given: m"),
        (KeyPadding("m"), {"m": M.astype(float)}, TypeError, "'m' is bool or int .* got dtype float64"),
        (Dense("m"), {"m": M[:, None, None]}, TypeError, "'m' is bool, broadcastable"),
        (Segments("a", "m"), {"a": M, "m": M[:, :4] > 0}, TypeError, "'m' is int"),
        (KeyPadding("m"), {"m": M[0]}, ValueError, r"Q=4, K=5; got shape \[5\]"),
        (KeyPadding("m"), {"m": M[:, :4]}, ValueError, r"got shape \[2, 4\]"),
        (Dense("m"), {"m": M[None, None, None] > 0}, ValueError, r"got shape \[1, 1, 1, 2, 5\]"),
        (Dense("m"), {"m": M > 0}, ValueError, r"got shape \[2, 5\]"),
        (Prefix("m"), {"m": M}, ValueError, r"int \[B\]"),
    ],
)
def test_dense_says_what_is_wrong_with_a_tensor(mask: Mask, tensors: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        mask.dense(4, 5, **tensors)


def test_dense_says_what_is_wrong_with_lengths() -> None:
    with pytest.raises(ValueError, match="not negative; got q_len=-1"):
        Causal().dense(-1, 3)
    with pytest.raises(ValueError, match=r"Q=4, K=5 and past=3; it is also read at q \+ past"):
        QueryPadding("m").dense(4, 5, 3, m=M)
    assert Causal().dense(0, 0).shape == (1, 1, 0, 0)


def test_mask_mod_says_what_it_needs() -> None:
    pytest.importorskip("torch")
    with pytest.raises(TypeError, match="depends on Q: pass q_len"):
        Causal(Row("n") - Q).mask_mod(n=np.array([3]))
    with pytest.raises(TypeError, match="needs m"):
        KeyPadding("m").mask_mod()


def test_to_onnx_says_what_it_takes() -> None:
    pytest.importorskip("onnx")
    with pytest.raises(ValueError, match="opset 13 or later; got opset_version=11"):
        Causal().to_onnx(opset_version=11)
    with pytest.raises(TypeError, match="has no tensor x; its tensors: m"):
        KeyPadding("m").to_onnx(dtypes={"x": bool})
    with pytest.raises(ValueError, match="'m' is bool or int"):
        KeyPadding("m").to_onnx(dtypes={"m": np.float32})
    model = KeyPadding("attend").to_onnx(opset_version=13, dtypes={"attend": np.int32})
    assert [value.name for value in model.graph.input] == ["q_len", "k_len", "past", "attend"]


def test_one_name_is_one_tensor() -> None:
    with pytest.raises(ValueError, match="x is used as bool or int \\[B, K\\] and as int \\[B\\]"):
        KeyPadding("x") & Prefix("x")
    with pytest.raises(ValueError, match="int \\[B, Q\\]"):
        Segments("x", "x")


def test_wide_expressions() -> None:
    mask = Full()
    for i in range(300):
        mask = mask & KeyPadding(f"m{i % 3}")
    assert str(mask) == "padding(m0) & padding(m1) & padding(m2)"
