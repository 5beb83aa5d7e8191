"""Session: inputs and outputs by name, options, placement, and many threads at once."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from maskport.runtime import InputError, ModelError, PlacedNode, Session
from maskport.runtime import packages as installed
from maskport.runtime.options import session_options

MODEL = """
<ir_version: 8, opset_import: ["": 18]>
add (float[batch, seq, 4] x, float[batch, seq, 4] y)
    => (float[batch, seq, 4] total, float[batch, seq, 4] less) {
    total = Add(x, y)
    less = Sub(x, y)
}
"""


@pytest.fixture(scope="module")
def model() -> bytes:
    return onnx.parser.parse_model(MODEL).SerializeToString()


@pytest.fixture(scope="module")
def session(model: bytes) -> Session:
    return Session(model, device="cpu")


def ones(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.ones(shape, dtype)


def test_numpy_in_numpy_out(session: Session) -> None:
    assert (session.device, session.input_names, session.output_names) == ("cpu", ["x", "y"], ["total", "less"])
    assert [str(item) for item in session.inputs] == ["float32 [batch, seq, 4]"] * 2
    assert [item.name for item in session.outputs] == ["total", "less"]
    outputs = session.run({"y": ones(2, 3, 4), "x": 2 * ones(2, 3, 4)})
    assert list(outputs) == ["total", "less"]
    np.testing.assert_array_equal(outputs["total"], 3 * ones(2, 3, 4))
    np.testing.assert_array_equal(outputs["less"], ones(2, 3, 4))


@pytest.mark.parametrize("names", [["less"], ("less", "total"), "less"])
def test_only_the_outputs_that_are_asked_for(session: Session, names: Any) -> None:
    outputs = session.run({"x": ones(1, 1, 4), "y": ones(1, 1, 4)}, names)
    assert list(outputs) == ([names] if isinstance(names, str) else list(names))
    assert not outputs["less"].any()


@pytest.mark.parametrize(
    ("names", "message"),
    [(["sum"], "outputs names sum; the model's outputs are total, less"), ([], "outputs is empty; the model's")],
)
def test_wrong_outputs_are_named(session: Session, names: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        session.run({"x": ones(1, 1, 4), "y": ones(1, 1, 4)}, names)


def test_a_file_gives_the_same_as_its_bytes(model: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(model)
    outputs = Session(tmp_path / "m.onnx", device="cpu").run({"x": ones(1, 1, 4), "y": ones(1, 1, 4)})
    assert outputs["total"].sum() == 8


def test_a_failing_run_shows_the_shapes_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    text = "g (float[n] x, int64[1] shape) => (float[m] y) { y = Reshape(x, shape) }"
    failing = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')
    with pytest.raises(ModelError) as raised:
        Session(failing.SerializeToString(), device="cpu").run({"x": ones(6), "shape": np.array([4])})
    assert str(raised.value) == (
        "ONNX Runtime failed on x [6], shape [1]: Non-zero status code returned while running Reshape node. Name:'' "
        "Status Message: input_shape_size == requested_shape_size was false. The input tensor cannot be reshaped to "
        "the requested shape. Input shape:{6}, requested shape:{4}"
    )
    assert capfd.readouterr() == ("", "")


def test_a_session_says_what_it_is(session: Session) -> None:
    assert repr(session) == (
        "Session(x: float32 [batch, seq, 4], y: float32 [batch, seq, 4] -> total, less; on cpu: the CPU was asked for)"
    )


def test_the_device_is_logged(model: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "maskport.runtime.session"):
        session = Session(model)
    assert caplog.messages == [f"the session runs on {session.device}: {session.why}"]


def test_two_packages_are_explained(model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "version", lambda name: "1")
    with pytest.warns(RuntimeWarning, match="both installed and overwrite each other's files; keep one: pip uninstall"):
        Session(model, device="cpu")


# Placement.


def test_placement_names_every_node() -> None:
    proto = onnx.parser.parse_model(MODEL)
    proto.graph.node[0].name = "the_sum"
    placement = Session(proto.SerializeToString(), device="cpu").placement()
    assert sorted(placement) == [
        PlacedNode("the_sum", "Add", "", "CPUExecutionProvider"),
        PlacedNode("unnamed Sub 1", "Sub", "", "CPUExecutionProvider"),
    ]


# Options.


def test_options_reach_onnx_runtime() -> None:
    options = session_options(3, "basic", "m.onnx", {"session.intra_op.allow_spinning": False, "n": 5}, verbose=True)
    assert (options.intra_op_num_threads, options.graph_optimization_level.name) == (3, "ORT_ENABLE_BASIC")
    assert (options.optimized_model_filepath, options.log_severity_level) == ("m.onnx", 2)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("n") == "5"
    assert options.get_session_config_entry("session.set_denormal_as_zero") == "1"


def test_the_optimized_model_is_written(model: bytes, tmp_path: Path) -> None:
    Session(model, device="cpu", threads=1, optimization="extended", optimized_path=tmp_path / "fast.onnx")
    assert Session(tmp_path / "fast.onnx", device="cpu").output_names == ["total", "less"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threads": 0}, "threads is 0; give a number of at least 1"),
        ({"threads": -2}, "threads is -2"),
        ({"threads": True}, "threads is True"),
        ({"threads": "2"}, "threads is '2'"),
        ({"optimization": "O3"}, "optimization 'O3' is unknown; use none, basic, extended, layout, all"),
        ({"config": {"": 1}}, "config has '': '1', which ONNX Runtime doesn't take"),
        ({"optimized_path": "no/such/folder/m.onnx"}, "whose folder isn't there"),
        ({"device": "cpu", "cuda_options": {"sdpa_kernel": 2}}, r"cuda_options \(sdpa_kernel\) are for CUDA"),
        ({"device": "cuda", "cuda_options": {"device_id": 1}}, "name the device as 'cuda:N'"),
    ],
)
def test_wrong_options_are_named(model: bytes, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Session(model, **arguments)
