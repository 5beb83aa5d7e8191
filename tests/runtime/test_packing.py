"""The inputs that tell a packed model its tokens: computed from the mask, or given and checked."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from maskport.runtime import AssumptionViolated, InputError, ModelError, Session
from maskport.runtime.packing import PackedMask

# The sum of what each token has, and what the session was heard to compute.
MODEL = """
<ir_version: 8, opset_import: ["": 18]>
packed (float[batch, seq] x, int64[batch, seq] m, int64[kept] tokens, int64[batch] lengths)
    => (float sum, int64[kept] told, int64[batch] counted) {
    flat = Constant<value_ints=[-1]>()
    none = Constant<value_floats=[0.0]>()
    row = Reshape(x, flat)
    longer = Concat<axis=0>(row, none)
    picked = Gather(longer, tokens)
    sum = ReduceSum<keepdims=0>(picked)
    told = Identity(tokens)
    counted = Identity(lengths)
}
"""
ENTRY: dict[str, Any] = {"mask": "m", "pad": 0, "tokens": "tokens", "lengths": "lengths", "places": [], "bucket": 4}
MASK = np.array([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 1, 0, 0]])
X = np.arange(15, dtype=np.float32).reshape(3, 5)
# Of the mask above: the empty row keeps its first.
TOKENS, LENGTHS = [0, 1, 5, 10, 12, -1, -1, -1], [2, 1, 2]


def file(*, version: int = 1, assumes: str | None = None, **changed: Any) -> bytes:
    model = onnx.parser.parse_model(MODEL)
    written: dict[str, Any] = {"maskport.packing": {"version": version, "masks": [ENTRY | changed]}}
    if assumes:
        written["maskport.assumes"] = {"version": 1, "assumes": [{"input": "m", "check": assumes}]}
    for key, value in written.items():
        model.metadata_props.add(key=key, value=json.dumps(value))
    return model.SerializeToString()


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(file(), device="cpu")


def test_tokens_are_computed_from_the_mask(session: Session) -> None:
    assert session.input_names == [item.name for item in session.inputs] == ["x", "m"]
    assert [str(item) for item in session.computed] == ["int64 [kept]", "int64 [batch]"]
    found = session.run({"x": X, "m": MASK})
    assert found["told"].tolist() == TOKENS
    assert found["counted"].tolist() == LENGTHS
    assert found["sum"] == X.ravel()[TOKENS[:5]].sum()


def test_a_mask_of_torch_is_read_on_the_cpu(session: Session) -> None:
    torch = pytest.importorskip("torch")
    found = session.run({"x": torch.from_numpy(X), "m": torch.from_numpy(MASK)})
    assert found["told"].tolist() == TOKENS
    assert session.run({"x": torch.from_numpy(X), "m": MASK})["counted"].tolist() == LENGTHS


@given(st.data())
def test_tokens_are_real_ones_row_by_row_then_what_is_kept_beside_them(data: st.DataObject) -> None:
    batch, length = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 8))
    rows = st.lists(st.lists(st.booleans(), min_size=length, max_size=length), min_size=batch, max_size=batch)
    valid = np.array(data.draw(rows))
    pad, bucket = data.draw(st.integers(0, 1)), data.draw(st.sampled_from([1, 4, 64]))
    places = data.draw(st.lists(st.sampled_from([0, 1, -1, -2, 7]), unique=True, max_size=3))
    mask = np.where(valid, 1 - pad, pad)
    found = PackedMask("m", pad, "tokens", "lengths", tuple(places), bucket).inputs(mask)
    kept = []
    for row in valid:
        real = [position for position in range(length) if row[position]]
        here = [place % length for place in places if -length <= place < length]
        others = {*here} if real else {0, *here}
        kept.append(real + sorted(others.difference(real)))
    flat = [row * length + position for row, positions in enumerate(kept) for position in positions]
    rounded = min(-(-len(flat) // bucket) * bucket, batch * length)
    assert found["tokens"].tolist() == flat + [-1] * (rounded - len(flat))
    assert found["lengths"].tolist() == [len(positions) for positions in kept]
    assert found["tokens"].dtype == found["lengths"].dtype == np.int64
    PackedMask("m", pad, "tokens", "lengths", tuple(places), bucket).check(mask, found["tokens"], found["lengths"])


def test_the_caller_may_tell_them(session: Session) -> None:
    more = np.array([*TOKENS, -1])
    found = session.run({"x": X, "m": MASK, "tokens": more, "lengths": np.array(LENGTHS)})
    assert found["told"].tolist() == more.tolist()


@pytest.mark.parametrize(
    ("tokens", "lengths", "message"),
    [
        (TOKENS, [2, 1, 1], "input 'lengths' must count the tokens of 'm'; leave 'tokens' and 'lengths' out"),
        (TOKENS[:3], LENGTHS, "input 'tokens' must be the 5 tokens of 'm', then -1 up to at most 10"),
        ([0, 1, 5, 10, 12, 13], LENGTHS, "input 'tokens' must be the 5 tokens of 'm'"),
        ([0, 1, 5, 12, 10], LENGTHS, "input 'tokens' must be the 5 tokens of 'm'"),
        ([*TOKENS, -1, -1, -1], LENGTHS, "input 'tokens' must be the 5 tokens of 'm'"),
    ],
)
def test_what_the_caller_tells_is_the_masks(
    session: Session, tokens: list[int], lengths: list[int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        session.run({"x": X, "m": MASK, "tokens": np.array(tokens), "lengths": np.array(lengths)})


def test_one_of_the_two_is_not_enough(session: Session) -> None:
    with pytest.raises(InputError, match=r"missing input lengths; the model's inputs are x, m, tokens, lengths"):
        session.run({"x": X, "m": MASK, "tokens": np.array(TOKENS)})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": X}, "missing input m"),
        ({"x": X, "m": MASK.astype(bool)}, r"input 'm' is bool \[3, 5\], the model takes int64 \[batch, seq\]"),
        ({"x": X, "m": MASK[0]}, "it takes 2 dimensions"),
        ({"x": X, "m": MASK[:, :4]}, "seq is 5 in 'x'"),
        ({"x": X[:0], "m": MASK[:0]}, "the batch is empty"),
        ([X, MASK], "inputs are of type list; give a dict"),
    ],
)
def test_the_mask_is_checked_before_tokens_are_computed(session: Session, inputs: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        session.run(inputs)


def test_assumptions_are_checked(session: Session) -> None:
    strict = Session(file(assumes="nonempty_rows"), device="cpu")
    assert strict.run({"x": X[:1], "m": MASK[:1]})["counted"].tolist() == [2]
    with pytest.raises(AssumptionViolated, match="'m' must be nonempty_rows"):
        strict.run({"x": X, "m": MASK})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"version": 2}, "maskport.packing has version 2, this Maskport reads version 1"),
        ({"tokens": "other"}, r"maskport.packing is damaged: KeyError\('other'\)"),
        ({"tokens": "x"}, "maskport.packing is damaged.*have other types"),
        ({"mask": "lengths"}, "maskport.packing is damaged.*have other types"),
        ({"bucket": 0}, "maskport.packing is damaged.*bucket is 0"),
        ({"places": None}, "maskport.packing is damaged"),
    ],
)
def test_what_the_file_says_wrong_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Session(file(**changed), device="cpu")
