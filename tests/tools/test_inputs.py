"""The inputs of a run: what is drawn fits the model and hides nothing; what is read is what the file holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from maskport.runtime import Session
from maskport.tools.errors import ToolError
from maskport.tools.inputs import draw_inputs, parse_sizes, read_inputs

from .tiny_models import tiny

ROLES = """
<ir_version: 10, opset_import: ["" : 20]>
roles (
    int64[batch, seq] input_ids, bool[batch, seq] key_padding_mask, int64[seq] position_ids,
    float16[batch, 2, memory] x, float[] scale, int64[a, b] segment_ids, int32[batch, seq] own_ids
) => (int64[batch, seq] y) { y = Identity (input_ids) }
"""
TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
text (string[batch] text) => (string[batch] y) { y = Identity (text) }
"""


def session_of(text: str, io: object = None) -> Session:
    model = onnx.parser.parse_model(text)
    if io is not None:
        onnx.helper.set_model_props(model, {"maskport.io": json.dumps(io)})
    return Session(model.SerializeToString(), device="cpu")


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(tiny(), device="cpu")


def test_sizes_are_read_from_the_last_colon() -> None:
    assert parse_sizes(["src:2x7x64", "onnx::Input:0:3"]) == {"src": (2, 7, 64), "onnx::Input:0": (3,)}


def test_what_is_drawn_can_be_run_and_hides_nothing(session: Session) -> None:
    drawn = draw_inputs(session, {})
    assert {name: array.shape for name, array in drawn.items()} == {"src": (2, 7, 4), "attention_mask": (2, 7)}
    assert drawn["attention_mask"].all()
    assert 0.5 < drawn["src"].std() < 1.5
    assert np.isfinite(session.run(drawn)["output"]).all()


def test_a_size_holds_for_every_axis_of_its_name(session: Session) -> None:
    drawn = draw_inputs(session, {"attention_mask": (3, 5)})
    assert drawn["src"].shape == (3, 5, 4)


def test_names_and_types_say_what_is_drawn() -> None:
    drawn = draw_inputs(session_of(ROLES), {})
    assert {array.dtype.name for array in drawn.values()} == {"int64", "bool", "float16", "float32", "int32"}
    assert not drawn["key_padding_mask"].any()
    assert drawn["position_ids"].tolist() == list(range(7))
    assert drawn["scale"].shape == ()
    assert drawn["x"].shape == (2, 2, 11)
    assert drawn["segment_ids"].shape == (13, 17)
    assert set(drawn["input_ids"].flat) == {0, 1}


def test_metadata_says_it_better() -> None:
    inputs = {declared.name: {"role": "other", "axes": list(declared.shape)} for declared in session_of(ROLES).inputs}
    inputs["input_ids"] |= {"role": "tokens", "pad": 1}
    inputs["own_ids"] |= {"role": "positions"}
    io = {"version": 1, "inputs": inputs, "outputs": {"y": {"axes": ["batch", "seq"]}}}
    drawn = draw_inputs(session_of(ROLES, io), {})
    assert set(drawn["input_ids"].flat) == {0, 2}
    assert drawn["own_ids"].tolist() == [list(range(7))] * 2


def test_the_seed_decides(session: Session) -> None:
    first, again, other = (draw_inputs(session, {}, seed)["src"] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_what_cannot_be_drawn_is_told() -> None:
    with pytest.raises(ToolError, match=r"input 'text' is a tensor.string., which can't be drawn; give --inputs"):
        draw_inputs(session_of(TEXT), {})


def test_lists_take_the_declared_type_where_that_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "inputs.json"
    values = {"x": [[[0.5], [1]]], "scale": 2, "key_padding_mask": [[0, 1]], "own_ids": [[1, 2]], "other": [1, 2]}
    path.write_text(json.dumps(values))
    read = read_inputs(path, session_of(ROLES))
    assert {name: array.dtype.name for name, array in read.items()} == {
        "x": "float16",
        "scale": "float32",
        "key_padding_mask": "bool",
        "own_ids": "int32",
        "other": "int64",
    }
    path.write_text(json.dumps({"own_ids": [[2**40]]}))
    with pytest.raises(ToolError, match="input 'own_ids' holds values that int32 can't hold"):
        read_inputs(path, session_of(ROLES))
    path.write_text(json.dumps({"key_padding_mask": [[2]]}))
    with pytest.raises(ToolError, match="input 'key_padding_mask' holds values that bool can't hold"):
        read_inputs(path, session_of(ROLES))


def test_one_array_is_enough_for_one_input(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> s (float[n] x) => (float[n] y) { y = Neg (x) }'
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    assert read_inputs(tmp_path / "x.npy", session_of(text))["x"].tolist() == [1, 1, 1]
