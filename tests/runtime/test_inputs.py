"""Inputs: made right or refused before ONNX Runtime sees them, in one line that says what to do."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import onnx.parser
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from maskport.runtime import InputError, MaskportError, Session
from maskport.runtime import inputs as runtime_inputs
from torch._subclasses import FakeTensorMode


def session_of(text: str) -> Session:
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]> {text}')
    return Session(proto.SerializeToString(), device="cpu")


@pytest.fixture(scope="module")
def session() -> Session:
    return session_of(
        "g (float[batch, seq, 4] x, int64[batch, seq] mask, float scale) => (float[batch, seq, 4] y)"
        "{ one = Constant <value = int64[1] {-1}> () keys = Unsqueeze(mask, one) m = Cast <to = 1> (keys)"
        "  masked = Mul(x, m) y = Mul(masked, scale) }"
    )


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
MASK = np.array([[1, 1, 0], [1, 1, 1]])
GOOD = {"x": X, "mask": MASK, "scale": np.array(2, np.float32)}
EXPECTED = 2 * X * MASK[..., None]
UNALIGNED = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(X.shape)


class Memory(np.ndarray):
    """As np.memmap: an array of another class."""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x", X),
        ("x", np.asfortranarray(X)),
        ("x", np.repeat(X, 2, axis=1)[:, ::2]),
        ("x", X[::-1, ::-1].copy()[::-1, ::-1]),
        ("x", X.astype(">f4")),
        ("x", np.asfortranarray(X.astype(">f4"))),
        ("x", UNALIGNED),
        ("x", X.view(Memory)),
        ("mask", MASK.astype(">i8")),
        ("scale", np.array(2, ">f4")),
        ("x", torch.from_numpy(X)),
        ("x", torch.from_numpy(X).permute(2, 0, 1).contiguous().permute(1, 2, 0)),
        ("x", torch.from_numpy(X).requires_grad_()),
        ("x", torch.nn.Parameter(torch.from_numpy(X))),
        ("x", torch._neg_view(torch.from_numpy(-X))),
        ("mask", torch.from_numpy(MASK)),
        ("scale", torch.tensor(2.0)),
        ("scale", torch.tensor(3.0) - 1),
    ],
)
def test_what_has_the_right_values_is_made_right(session: Session, name: str, value: Any) -> None:
    output = session.run({**GOOD, name: value})["y"]
    assert isinstance(output, torch.Tensor if isinstance(value, torch.Tensor) else np.ndarray)
    np.testing.assert_array_equal(output, EXPECTED)


def test_unaligned_is_unaligned() -> None:
    assert not UNALIGNED.flags.aligned


def test_nan_and_infinity_are_values(session: Session) -> None:
    x = X.copy()
    x[0, 0, :2] = np.nan, np.inf
    np.testing.assert_array_equal(session.run({**GOOD, "x": x})["y"][0, 0, :2], [np.nan, np.inf])


with FakeTensorMode():
    FAKE = torch.ones(2, 3, 4)

WRONG = [
    (
        "x",
        None,
        r"'x' is of type NoneType; give a numpy array or a torch tensor: the model takes float32 \[batch, seq, 4\]",
    ),
    ("x", X.tolist(), "'x' is of type list; give a numpy array or a torch tensor"),
    ("scale", 2.0, r"'scale' is of type float; .* the model takes float32 \[\]"),
    ("scale", np.float32(2), "'scale' is of type float32; give a numpy array"),
    ("x", "text", "'x' is of type str"),
    ("x", X.astype(np.float64), r"'x' is float64 \[2, 3, 4\], the model takes float32 \[batch, seq, 4\]; cast it with"),
    ("x", X.astype(">f8"), r"'x' is >f8 \[2, 3, 4\], the model takes float32 .*cast it with .astype\('float32'\)"),
    ("x", X.astype(np.complex64), "'x' is complex64"),
    ("x", X.astype(object), r"'x' is object \[2, 3, 4\], the model takes float32"),
    ("x", X.astype(str), r"'x' is <U32 \[2, 3, 4\]"),
    ("x", X.astype("S"), r"'x' is \|S32"),
    ("x", np.zeros((2, 3, 4), "datetime64[s]"), r"'x' is datetime64\[s\]"),
    ("x", np.zeros((2, 3, 4), [("a", "f4")]), "'x' is .*the model takes float32"),
    ("x", np.ma.masked_array(X, X > 3), "'x' is a masked array, whose mask would be lost; fill it first"),
    ("mask", MASK.astype(bool), r"'mask' is bool \[2, 3\], the model takes int64 \[batch, seq\]; cast it"),
    ("mask", MASK.astype(np.int32), "'mask' is int32"),
    ("mask", MASK.astype(np.uint64), "'mask' is uint64"),
    ("x", X[0], r"'x' is float32 \[3, 4\], the model takes float32 \[batch, seq, 4\]; it takes 3 dimensions"),
    ("x", X[None], r"'x' is float32 \[1, 2, 3, 4\], .*; it takes 3 dimensions"),
    ("x", np.float32(1) + np.zeros(()), "'x' is of type float64|'x' is float64"),
    ("scale", np.ones(1, np.float32), r"'scale' is float32 \[1\], the model takes float32 \[\]; it takes 0 dimensions"),
    ("x", X[..., :3], r"'x' is float32 \[2, 3, 3\], .*; axis 2 must be 4"),
    ("x", X[..., :0], r"'x' is float32 \[2, 3, 0\], .*; axis 2 must be 4"),
    ("mask", MASK[:1], r"'mask' is int64 \[1, 3\], .*; batch is 2 in 'x'"),
    ("mask", MASK[:, :2], r"'mask' is int64 \[2, 2\], .*; seq is 3 in 'x'"),
    ("x", X[:0], r"'x' is float32 \[0, 3, 4\], .*; the batch is empty: give at least one row"),
    (
        "x",
        np.broadcast_to(np.float32(0), (10**7, 10**7, 4)),
        r"'x' is float32 \[10000000, 10000000, 4\], .*; there is no memory to make it contiguous",
    ),
    ("x", torch.ones(2, 3, 4).double(), r"'x' is torch.float64 \[2, 3, 4\], .*; cast it with .to\(torch.float32\)"),
    ("x", torch.ones(2, 3, 4).bfloat16(), "'x' is torch.bfloat16"),
    ("x", torch.ones(2, 3, 4, device="meta"), "'x' is on meta, the session runs on cpu; move the tensor there"),
    ("x", torch.ones(2, 3, 4).to_sparse(), "'x' is a nested or sparse tensor"),
    ("x", FAKE, "'x' is a FakeTensor without memory; give a real tensor"),
    ("x", torch.nested.nested_tensor([torch.ones(3, 4)], layout=torch.jagged), "'x' is a nested"),
    ("x", torch.ones(2, 3), r"'x' is torch.float32 \[2, 3\], .*; it takes 3 dimensions"),
]


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_what_is_wrong_is_named(session: Session, name: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        session.run({**GOOD, name: value})
    assert "\n" not in str(raised.value)
    np.testing.assert_array_equal(session.run(GOOD)["y"], EXPECTED)


def test_a_tensor_inside_vmap_is_refused(session: Session) -> None:
    with pytest.raises(InputError, match="'x' can't be read: Cannot access data pointer"):
        torch.vmap(lambda x: session.run({**GOOD, "x": x}))(torch.ones(5, 2, 3, 4))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "missing inputs x, mask, scale; the model's inputs are x, mask, scale"),
        ({"x": X, "mask": MASK}, "missing input scale; the model's"),
        ({**GOOD, "y": X, "z": X}, "unknown inputs y, z; the model's"),
        ({"X": X, "mask": MASK, "scale": X}, "unknown input X; missing input x; the"),
        ({**GOOD, 3: X}, "unknown input 3; the"),
        ([X, MASK], "inputs are of type list; give a dict of name to array"),
        (X, "inputs are of type ndarray"),
        (None, "inputs are of type NoneType"),
    ],
)
def test_wrong_names_are_named(session: Session, inputs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        session.run(inputs)


DTYPES = (
    st.sampled_from([np.dtype(np.float32), np.dtype(np.int64)]) | arrays.scalar_dtypes() | arrays.byte_string_dtypes()
)
SHAPES = st.sampled_from([(2, 3, 4), (2, 3), ()]) | arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@given(name=st.sampled_from(list(GOOD)), array=arrays.arrays(DTYPES, SHAPES), turned=st.booleans())
def test_any_array_gives_an_answer_or_an_error_of_ours(
    session: Session, name: str, array: np.ndarray, turned: bool
) -> None:
    inputs = {**GOOD, name: array.T if turned else array}
    output = None
    with contextlib.suppress(InputError):
        output = session.run(inputs)["y"]
    if output is not None:
        assert inputs[name].shape == GOOD[name].shape
        assert inputs[name].dtype.newbyteorder("=") == GOOD[name].dtype
        assert output.shape == X.shape


# What counts as the batch. GroupQueryAttention ends the process on an empty one.


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("g (float[n, 4] x) => (float[n, 4] y) { y = Abs(x) }", {"x": np.zeros((0, 4), np.float32)}),
        ("g (float[?, 4] x) => (float[?, 4] y) { y = Abs(x) }", {"x": np.zeros((0, 4), np.float32)}),
        ("g (float[s, batch, 4] x) => (float[s, batch, 4] y) { y = Abs(x) }", {"x": np.zeros((3, 0, 4), np.float32)}),
        (
            "g (int32[n] lengths, float[n, 4] x) => (float[n, 4] y, int32[n] l) { y = Abs(x) l = Abs(lengths) }",
            {"lengths": np.zeros(0, np.int32), "x": np.zeros((0, 4), np.float32)},
        ),
    ],
)
def test_an_empty_batch_is_refused(text: str, inputs: dict[str, np.ndarray]) -> None:
    with pytest.raises(InputError, match="the batch is empty: give at least one row"):
        session_of(text).run(inputs)


def test_group_query_attention_never_sees_an_empty_batch() -> None:
    # Without the check this ends the process.
    session = session_of(
        "g (float[b, s, 64] q, float[b, s, 16] k, int32[b] last, int32 total)"
        "=> (float[b, s, 64] y, float[b, 2, t, 8] keys, float[b, 2, t, 8] values)"
        "{ y, keys, values = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 2>"
        "(q, k, k, , , last, total) }"
    )
    q, k = np.ones((2, 3, 64), np.float32), np.ones((2, 3, 16), np.float32)
    inputs = {"q": q, "k": k, "last": np.full(2, 2, np.int32), "total": np.array(3, np.int32)}
    assert session.run(inputs)["y"].shape == (2, 3, 64)
    with pytest.raises(InputError, match="the batch is empty"):
        session.run({name: array[:0] if array.ndim else array for name, array in inputs.items()})


@pytest.mark.parametrize("as_torch", [False, True])
def test_an_empty_past_is_no_empty_batch(as_torch: bool) -> None:
    session = session_of(
        "g (float[b, past, 2] old, float[b, s, 2] new) => (float[b, total, 2] y) { y = Concat <axis = 1> (old, new) }"
    )
    old, new = np.zeros((1, 0, 2), np.float32), np.ones((1, 3, 2), np.float32)
    inputs = {"old": old, "new": new}
    if as_torch:
        inputs = {name: torch.from_numpy(array) for name, array in inputs.items()}
    np.testing.assert_array_equal(session.run(inputs)["y"], new)


# Types that numpy or torch lack.


def test_strings() -> None:
    session = session_of("g (string[n] x) => (string[n] y) { y = Identity(x) }")
    for array in (np.array(["a", "é"]), np.array(["a", "é"], object), np.array(["é", "-", "a"])[::-2]):
        np.testing.assert_array_equal(session.run({"x": array})["y"], ["a", "é"])
    for wrong in (
        np.array([b"a", b"\xff"]),
        np.array(["a", 3], object),
        np.array([1.0]),
        np.array(["a"], np.dtypes.StringDType()),
    ):
        with pytest.raises(InputError, match=r"the model takes tensor\(string\) \[n\]; give an array of str"):
            session.run({"x": wrong})
    with pytest.raises(InputError, match=r"'x' is torch.float32 \[1\], the model takes tensor\(string\)"):
        session.run({"x": torch.ones(1)})


def test_bfloat16_is_for_torch() -> None:
    session = session_of("g (bfloat16[n] x) => (bfloat16[n] y) { y = Identity(x) }")
    for wrong in (np.ones(1), np.ones(1, np.float32), np.ones(1, np.int16)):
        with pytest.raises(InputError, match=r"the model takes bfloat16.*give a torch tensor: numpy has no bfloat16"):
            session.run({"x": wrong})
    widened = session_of("g (float[n] x) => (bfloat16[n] y, float[n] z) { y = Cast <to = 16> (x) z = Abs(x) }")
    with pytest.raises(InputError, match=r"output 'y' is tensor\(bfloat16\), which numpy doesn't have; give torch"):
        widened.run({"x": np.ones(1, np.float32)})
    assert widened.run({"x": np.ones(1, np.float32)}, ["z"])["z"] == 1


def test_a_sequence_goes_out_as_a_list_and_not_in() -> None:
    session = session_of("g (float[n] x) => (seq(float[n]) y) { y = SequenceConstruct(x, x) }")
    assert [array.tolist() for array in session.run({"x": np.ones(1, np.float32)})["y"]] == [[1], [1]]
    with pytest.raises(MaskportError, match="output 'y' is no tensor; give numpy arrays, or leave it out"):
        session.run({"x": torch.ones(1)})
    taking = session_of("g (seq(float[n]) x) => (int64 y) { y = SequenceLength(x) }")
    with pytest.raises(InputError, match="'x' is of type list"):
        taking.run({"x": [np.ones(1, np.float32)]})
    with pytest.raises(InputError, match=r"the model takes seq\(tensor\(float\)\) \[\]; Session takes tensors only"):
        taking.run({"x": np.ones(1, np.float32)})


def test_a_model_without_inputs() -> None:
    session = session_of("g () => (float[2] y) { y = Constant <value = float[2] {1, 2}> () }")
    assert session.run({})["y"].tolist() == [1, 2]
    with pytest.raises(InputError, match="unknown input x; the model's inputs are none"):
        session.run({"x": X})


def test_shapes_that_passed_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_inputs, "REMEMBERED", 3)
    session = session_of("g (float[n, m] x) => (float[n, m] y) { y = Abs(x) }")
    for size in range(1, 9):
        session.run({"x": np.ones((size, size), np.float32)})
        assert len(session._inputs._passed) <= 3
    with pytest.raises(InputError, match="the batch is empty"):
        session.run({"x": np.ones((0, 1), np.float32)})
