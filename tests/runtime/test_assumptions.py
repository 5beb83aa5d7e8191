"""Assumptions: what a file takes for granted is checked on each run, by definition and by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from maskport.runtime import AssumptionViolated, InputError, ModelError, Session
from maskport.runtime.assumptions import CHECKS, Assumption, read_assumptions
from maskport.runtime.inputs import DeclaredValue

Row = list[int]
# The slow, obvious definitions: of one row, with 0 for padding.
DEFINITIONS: dict[str, Callable[[Row], bool]] = {
    "binary": lambda row: all(value in (0, 1) for value in row),
    "right_padded": lambda row: all(row[: sum(map(bool, row))]),
    "left_padded": lambda row: all(row[len(row) - sum(map(bool, row)) :]),
    "contiguous": lambda row: "0" not in "".join(str(int(bool(value))) for value in row).strip("0"),
    "nonempty_rows": lambda row: any(row),
    "length_le:3": lambda row: len(row) <= 3,
}
PATTERNS = {
    "ones": [1, 1, 1, 1, 1],
    "right": [1, 1, 1, 0, 0],
    "left": [0, 0, 1, 1, 1],
    "middle": [0, 1, 1, 1, 0],
    "holes": [1, 0, 1, 1, 0],
    "one token": [0, 0, 1, 0, 0],
    "empty": [0, 0, 0, 0, 0],
    "twos": [2, 2, 0, 0, 0],
}
HOLDS = {
    "binary": {"ones", "right", "left", "middle", "holes", "one token", "empty"},
    "right_padded": {"ones", "right", "empty", "twos"},
    "left_padded": {"ones", "left", "empty"},
    "contiguous": {"ones", "right", "left", "middle", "one token", "empty", "twos"},
    "nonempty_rows": {"ones", "right", "left", "middle", "holes", "one token", "twos"},
    "length_le:3": set(),
}


def holds(check: str, values: np.ndarray, axis: int = 1, pad: float = 0) -> bool:
    try:
        Assumption("mask", check, axis, "", pad).verify(values)
    except AssumptionViolated:
        return False
    return True


def test_every_check_has_a_definition() -> None:
    assert {check.partition(":")[0] for check in DEFINITIONS} == set(CHECKS)


@pytest.mark.parametrize("check", HOLDS)
def test_each_check_on_each_pattern(check: str) -> None:
    assert {name for name, row in PATTERNS.items() if holds(check, np.array([row]))} == HOLDS[check]


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.int64, np.float32])
@pytest.mark.parametrize("check", DEFINITIONS)
@given(data=st.data())
def test_a_check_is_its_definition(check: str, dtype: type, data: st.DataObject) -> None:
    shape = data.draw(arrays.array_shapes(min_dims=1, max_dims=3, max_side=5))
    values = data.draw(arrays.arrays(np.int64, shape, elements=st.integers(0, 2))).astype(dtype)
    axis = data.draw(st.integers(0, len(shape) - 1))
    rows = np.moveaxis(values, axis, -1).reshape(-1, shape[axis])
    assert holds(check, values, axis) == all(DEFINITIONS[check](row.tolist()) for row in rows)


def test_padding_is_what_the_file_says() -> None:
    tokens = np.array([[5, 0, 7, 1, 1]])
    assert holds("right_padded", tokens, pad=1)
    assert not holds("right_padded", tokens, pad=0)


def test_nan_is_not_binary() -> None:
    assert not holds("binary", np.array([[1, np.nan]], np.float32))


def test_a_row_without_positions_is_empty() -> None:
    assert not holds("nonempty_rows", np.zeros((2, 0)))
    assert holds("right_padded", np.zeros((2, 0)))


# Through a session.

MODEL = """
<ir_version: 8, opset_import: ["": 18]>
g (float[batch, seq] x, int64[batch, seq] mask) => (float[batch, seq] y) { m = Cast<to = 1>(mask) y = Mul(x, m) }
"""


def model(assumes: Any, io: Any = None) -> bytes:
    proto = onnx.parser.parse_model(MODEL)
    written = {"maskport.assumes": assumes, "maskport.io": io}
    for key, value in written.items():
        if value is not None:
            proto.metadata_props.add(key=key, value=value if isinstance(value, str) else json.dumps(value))
    return proto.SerializeToString()


def assuming(*entries: dict[str, Any], version: int = 1) -> dict[str, Any]:
    return {"version": version, "assumes": list(entries)}


RIGHT = {"input": "mask", "check": "right_padded", "axis": "seq", "source": "drop_padding at layers.0"}


@pytest.mark.parametrize("as_torch", [False, True])
def test_a_violation_names_input_row_and_value(as_torch: bool) -> None:
    session = Session(model(assuming(RIGHT)), device="cpu")
    inputs: dict[str, Any] = {"x": np.ones((3, 4), np.float32), "mask": np.array([[1, 1, 1, 0]] * 3)}
    assert session.run(inputs)["y"].sum() == 9
    inputs["mask"][2] = [1, 0, 7, 0]
    if as_torch:
        torch = pytest.importorskip("torch")
        inputs = {name: torch.from_numpy(array) for name, array in inputs.items()}
    with pytest.raises(AssumptionViolated) as raised:
        session.run(inputs)
    assert str(raised.value) == (
        "input 'mask' must be right_padded, which drop_padding at layers.0 takes for granted: 7 at row 2, position 2 "
        "is real and comes after padding; change the input, or make the model again without this assumption"
    )
    assert isinstance(raised.value, InputError)


def test_several_assumptions_are_all_checked() -> None:
    session = Session(model(assuming(RIGHT, {"input": "mask", "check": "binary"})), device="cpu")
    with pytest.raises(AssumptionViolated, match="must be binary, which the model takes for granted: 2 at row 0"):
        session.run({"x": np.ones((1, 2), np.float32), "mask": np.array([[2, 0]])})


def test_the_pad_value_is_read_from_the_file() -> None:
    io = {"version": 1, "inputs": {"mask": {"role": "tokens", "axes": ["batch", "seq"], "pad": 9}}, "outputs": {}}
    session = Session(model(assuming(RIGHT), io), device="cpu")
    assert session.run({"x": np.ones((1, 3), np.float32), "mask": np.array([[0, 5, 9]])})["y"].sum() == 14


@pytest.mark.parametrize(
    ("assumes", "io", "message"),
    [
        (assuming(RIGHT, version=2), None, "maskport.assumes has version 2, this Maskport reads version 1; update"),
        ([RIGHT], None, "maskport.assumes has version None"),
        (None, {"version": 7}, "maskport.io has version 7"),
        ("{", None, "maskport.assumes is no JSON"),
        (assuming({**RIGHT, "check": "sorted"}), None, "'mask' is 'sorted', which this Maskport can't check; it knows"),
        (assuming({**RIGHT, "check": "length_le"}), None, "can't check"),
        (assuming({**RIGHT, "check": "length_le:x"}), None, "can't check"),
        (assuming({**RIGHT, "check": "binary:1"}), None, "can't check"),
        (assuming({**RIGHT, "input": "none"}), None, "has no such numeric input"),
        (assuming({**RIGHT, "axis": 2}), None, r"along axis 2, which int64 \[batch, seq\] doesn't have"),
        (assuming({**RIGHT, "axis": "time"}), None, "along axis 'time'"),
        (assuming({"check": "binary"}), None, "is damaged: KeyError"),
        (assuming({**RIGHT, "check": 3}), None, "is damaged: AttributeError"),
        ({"version": 1, "assumes": 3}, None, "is damaged: TypeError"),
    ],
)
def test_what_cant_be_checked_is_refused_at_load(assumes: Any, io: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Session(model(assumes, io), device="cpu")


def test_an_axis_counts_from_the_end_by_default() -> None:
    declared = [DeclaredValue("mask", "tensor(int64)", ("batch", "heads", "seq"))]
    metadata = {"maskport.assumes": json.dumps(assuming({"input": "mask", "check": "binary"}))}
    assert [assumption.axis for assumption in read_assumptions(metadata, declared)] == [2]
