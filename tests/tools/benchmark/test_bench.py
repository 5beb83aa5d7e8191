"""A file and a module, measured from end to end; what is wrong is shown as wrong."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from maskport.export import export
from maskport.tools import bench
from maskport.tools.benchmark.plot import plot
from maskport.tools.benchmark.points import Point
from maskport.tools.benchmark.result import Result
from maskport.tools.benchmark.table import result_tables
from maskport.tools.cli import app
from maskport.tools.errors import ToolError
from maskport.tools.spec import load
from rich.console import Console

SMALL = Point("base", 3, 8, 0.6)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in encoder over padded batches."""
    source, path = load("encoder"), tmp_path_factory.mktemp("bench") / "encoder.onnx"
    export(source.module, source.example_inputs, path, dynamic_shapes=source.dynamic_shapes, check=False)
    return path


@pytest.fixture(scope="module")
def deaf(model: Path) -> Path:
    """The same without its mask: every padding is attended."""
    proto, path = onnx.load(model), model.with_name("deaf.onnx")
    constant = onnx.helper.make_node("ConstantOfShape", ["mask_shape"], ["ones"])
    constant.attribute.append(
        onnx.helper.make_attribute("value", onnx.helper.make_tensor("", onnx.TensorProto.INT64, [1], [1]))
    )
    shape = onnx.helper.make_node("Shape", ["attention_mask"], ["mask_shape"])
    for node in proto.graph.node:
        node.input[:] = ["ones" if name == "attention_mask" else name for name in node.input]
    proto.graph.node.insert(0, constant)
    proto.graph.node.insert(0, shape)
    onnx.save(proto, path)
    return path


@pytest.fixture(scope="module")
def result(model: Path, deaf: Path) -> Result:
    """The file beside itself row by row, and the one without its mask."""
    return bench(model, against=[deaf], candidates=["ort", "ort, rows", "eager"], point=SMALL, quick=True)


def test_right_candidates_are_timed_with_their_memory(result: Result) -> None:
    (point,) = result.points
    assert [entry.name for entry in result.right(point)] == ["ort", "ort, rows"]
    for name in ("ort", "ort, rows"):
        assert len(point.seconds[name]) == 3
        assert point.median(name) > 0
        assert (point.megabytes[name] or 1000) > 10
        assert (point.errors[name] or 0) < 1e-5


def test_a_file_that_lost_its_mask_is_wrong_and_never_the_best(result: Result) -> None:
    (point,), entry = result.points, result.entries[-1]
    assert entry.name == "deaf.onnx"
    assert entry.status == "wrong"
    assert "valid rows differ" in entry.why
    assert {name: bool(found.wrong) for name, found in entry.padding.items()} == {
        "ones": False,
        "right": True,
        "left": True,
        "holes": True,
    }
    assert "deaf.onnx" not in {line["name"] for line in result.summary(point)}


def test_what_a_file_has_not_is_not_available(result: Result) -> None:
    eager = result.entries[0]
    assert (eager.name, eager.status, eager.why) == ("eager", "not available", "a file was given, no module")


def test_the_json_reads_back(result: Result) -> None:
    text = json.dumps(result.to_json(), allow_nan=False)
    assert Result.from_json(json.loads(text)).to_json() == result.to_json()


def test_the_tables_fit_80_columns_and_say_what_is_wrong(result: Result, tmp_path: Path) -> None:
    with (tmp_path / "table").open("w+") as file:
        Console(file=file, width=80).print(result_tables(result))
        file.seek(0)
        text = file.read()
    assert "deaf.onnx wrong" in text
    assert "eager: not available: a file was given, no module" in text
    # No name is broken.
    assert "ort, rows " in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_plot_is_drawn(result: Result, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    plot(result, path := tmp_path / f"plot.{suffix}")
    head = path.read_bytes()[:400]
    assert b"<svg" in head or head.startswith(b"\x89PNG")


def test_a_module_is_measured_beside_its_exports() -> None:
    found = bench("encoder-windowed", candidates=["eager", "ort", "ort opset 23"], point=SMALL, quick=True)
    assert [(entry.name, entry.status) for entry in found.entries] == [
        ("eager", "ok"),
        ("ort", "ok"),
        ("ort opset 23", "ok"),
    ]
    assert found.reference == "PyTorch, eager"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"candidates": ["tensorrt"]}, "no candidate 'tensorrt'"),
        ({"sweeps": ["depth"]}, "no sweep 'depth'"),
        ({"against": ["missing.onnx"]}, "missing.onnx, which is no file"),
    ],
)
def test_arguments_that_can_not_be_meant_are_refused(model: Path, arguments: dict, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        bench(model, **arguments)


def test_the_command_shows_a_result_that_was_kept(
    result: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kept.json"
    path.write_text(json.dumps(result.to_json()))
    with pytest.raises(SystemExit) as ended:
        app(["bench", str(path), "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out) == result.to_json()


def test_a_json_that_is_no_result_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(SystemExit) as ended:
        app(["bench", str(tmp_path / "other.json")])
    assert ended.value.code == 2
    assert "holds no result of maskport bench" in capsys.readouterr().err
