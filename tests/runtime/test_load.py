"""Loading: whatever a file is, one line says what is wrong with it and what to do."""

from __future__ import annotations

import os
import random
import re
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from maskport.runtime import MaskportError, ModelError, Session
from maskport.runtime.load import LOAD_FAULTS, load, load_fault

HEAD = '<ir_version: 10, opset_import: ["": 18]> '
ABS = "g (float[n] x) => (float[n] y) { y = Abs(x) }"


def built(text: str, head: str = HEAD) -> bytes:
    return onnx.parser.parse_model(head + text).SerializeToString()


def message(model: object) -> str:
    with pytest.raises(ModelError) as raised:
        Session(model, device="cpu")  # type: ignore[arg-type]
    text = str(raised.value)
    assert "\n" not in text
    assert "onnxruntime_src" not in text
    return text


GOOD = built(ABS)
FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", " is empty; give the path of an ONNX file"),
    "cut short": (GOOD[:40], " is damaged, cut short, or no ONNX model; make it again"),
    "one byte short": (GOOD[:-1], " is damaged, cut short"),
    "text": (b"not a model", " is damaged, cut short, or no ONNX model"),
    "zeros": (b"\0" * 64, " is damaged, cut short, or no ONNX model"),
    "png": (b"\x89PNG\r\n\x1a\n" + b"\0" * 64, " is no ONNX model: it is a PNG image"),
    "gzip": (b"\x1f\x8b\x08\0abc", "it is a gzip archive; unpack it"),
    "pickle": (b"\x80\x02}q\0.", "it is a Python pickle, perhaps a PyTorch checkpoint; export the module first"),
    "html": (b"<!DOCTYPE html><html>404</html>", "it is an HTML or XML text, perhaps the error page of a download"),
    "json": (b'{"error": 404}', "it is a JSON text"),
    "lfs": (
        b"version https://git-lfs.github.com/spec/v1\n",
        "it is a Git LFS pointer and not the file itself; run git lfs",
    ),
    "no graph": (b"\x08\x0a", " is no ONNX model: it has no graph"),
    "opset": (
        built(ABS, '<ir_version: 10, opset_import: ["": 99]> '),
        " uses opset 99, which is too new for ONNX Runtime",
    ),
    "ir version": (built(ABS, '<ir_version: 99, opset_import: ["": 18]> '), " has ONNX IR version 99, ONNX Runtime "),
    "operator": (
        built("g (float[n] x) => (float[n] y) { y = Foo(x) }"),
        " uses the operator Foo of opset 18, which ONNX Runtime .* doesn't know; update",
    ),
    "custom operator": (
        built(
            "g (float[n] x) => (float[n] y) { y = a.b.Foo(x) }", '<ir_version: 10, opset_import: ["": 18, "a.b": 1]> '
        ),
        " uses the operator a.b:Foo, which ONNX Runtime .* doesn't know; update",
    ),
    "not on this device": (
        built("g (bfloat16[n, n] x) => (bfloat16[n, n] y) { y = MatMul(x, x) }"),
        r" has a node that the device's providers don't implement: MatMul\(13\) ''; use another device or element type",
    ),
    "another fault": (
        built("g (float[n] x) => (int64[n] y) { y = Abs(x) }"),
        r" is refused by ONNX Runtime: Type Error: Type \(tensor\(int64\)\) of output arg \(y\)",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_file_is_named_and_explained(tmp_path: Path, name: str) -> None:
    content, expected = FILES[name]
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert re.search(re.escape(str(path)) + ".*" + expected, message(path))


@pytest.mark.parametrize("name", FILES)
def test_wrong_bytes_are_explained(name: str) -> None:
    content, expected = FILES[name]
    expected = "the model is empty: it has 0 bytes" if not content else f"the model of {len(content)} bytes.*{expected}"
    assert re.search(expected, message(content))


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    assert message(tmp_path) == f"{tmp_path} is a folder; give the path of an ONNX file"
    assert message(tmp_path / "none") == f"{tmp_path / 'none'} is no file; give the path of an ONNX file"
    assert message(str(tmp_path / "nul\0")).endswith("is no file; give the path of an ONNX file")
    assert message("") == ". is a folder; give the path of an ONNX file"
    assert message(3) == "the model is of type int; give the path or the bytes of an ONNX file"
    os.mkfifo(tmp_path / "fifo")
    assert message(tmp_path / "fifo").endswith("is no file; give the path of an ONNX file")
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr("m.onnx", GOOD)
    assert message(tmp_path / "m.zip").endswith(
        "it is a zip archive or a PyTorch checkpoint; unpack it, or export the module first"
    )


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "m.onnx").write_bytes(GOOD)
    monkeypatch.setattr(Path, "open", deny)
    with pytest.raises(ModelError, match="can't be read: Permission denied"):
        load(tmp_path / "m.onnx", ort.SessionOptions(), ["CPUExecutionProvider"])


def test_a_saved_ort_file_runs_and_a_damaged_one_is_explained(tmp_path: Path) -> None:
    Session(GOOD, device="cpu", optimized_path=tmp_path / "m.ort")
    assert Session(tmp_path / "m.ort", device="cpu").run({"x": np.array([-1], np.float32)})["y"] == 1
    whole = (tmp_path / "m.ort").read_bytes()
    (tmp_path / "m.ort").write_bytes(whole[: len(whole) // 2])
    assert "is damaged, cut short, or no ONNX model" in message(tmp_path / "m.ort")


def test_damage_anywhere_is_an_error_or_a_model() -> None:
    draw = random.Random(0)
    refused = 0
    for _ in range(200):
        data = bytearray(GOOD)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            Session(bytes(data), device="cpu").run({"x": np.ones(2, np.float32)})
        except MaskportError:
            refused += 1
    assert refused > 100


# External data.

WEIGHTS = np.arange(4, dtype=np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for a model, and one file beside the folder."""
    (tmp_path / "outside.bin").write_bytes(WEIGHTS.tobytes())
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for path in (folder / "weights.bin", folder / "sub" / "weights.bin"):
        path.write_bytes(WEIGHTS.tobytes())
    (folder / "short.bin").write_bytes(WEIGHTS.tobytes()[:7])
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    (folder / "up").symlink_to(tmp_path)
    return folder


def with_data(folder: Path, location: str, **more: int) -> Path:
    proto = onnx.parser.parse_model(HEAD + "g (float[4] x) => (float[4] y) { y = Add(x, w) }")
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    proto.graph.initializer.append(tensor)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return folder / "m.onnx"


@pytest.mark.parametrize("location", ["weights.bin", "sub/weights.bin", "sub/../weights.bin"])
def test_external_data_in_the_folder_is_read(folder: Path, location: str) -> None:
    outputs = Session(with_data(folder, location), device="cpu").run({"x": np.zeros(4, np.float32)})
    np.testing.assert_array_equal(outputs["y"], WEIGHTS)


OUTSIDE = (
    "has external data outside its folder, which is refused: 'w' is in '{}'; put the data, and no link to it, beside"
)


@pytest.mark.parametrize(
    ("location", "more", "expected"),
    [
        (
            "none.bin",
            {},
            "misses its external data: 'w' is in .*none.bin, which isn't there; keep the model and its data",
        ),
        ("../outside.bin", {}, OUTSIDE.format("../outside.bin")),
        ("sub/../../outside.bin", {}, OUTSIDE.format("sub/../../outside.bin")),
        ("link.bin", {}, OUTSIDE.format("link.bin")),
        ("up/outside.bin", {}, OUTSIDE.format("up/outside.bin")),
        ("/etc/hostname", {}, "has external data at an absolute path, which is refused: 'w'; put the data beside"),
        ("short.bin", {}, "cut short or damaged: 'w' wants 16 bytes at 0 of a file of 7 bytes; fetch the data again"),
        ("weights.bin", {"offset": 8, "length": 16}, "'w' wants 16 bytes at 8 of a file of 16 bytes"),
        ("weights.bin", {"offset": 10**18, "length": 16}, "'w' wants 16 bytes at 1000000000000000000"),
        ("weights.bin", {"offset": -1, "length": 16}, "'w' wants 16 bytes at -1"),
        ("sub", {}, "has external data in .*sub, which is no file"),
        ("", {}, "has external data without a location"),
        (
            "*/_ORT_MEM_ADDR_/*",
            {"offset": 4096, "length": 16},
            "is refused by ONNX Runtime: .*in-memory address marker",
        ),
    ],
)
def test_external_data_that_cant_be_taken(folder: Path, location: str, more: dict[str, int], expected: str) -> None:
    path = with_data(folder, location, **more)
    assert re.search(re.escape(str(path)) + " .*" + expected, message(path))


def test_bytes_cant_have_external_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for location in ("weights.bin", "../outside.bin"):
        content = with_data(folder, location).read_bytes()
        assert "keeps the data of 'w' in another file, which bytes alone can't reach; give the model's path" in message(
            content
        )
    content = with_data(folder, "weights.bin").read_bytes()
    monkeypatch.chdir(folder)
    assert "keeps data in another file, which bytes alone can't reach" in message(content)


# The table of messages. Those that no file of this test brings out are given as ONNX Runtime writes them.

SIMULATED: dict[str, str] = {
    'Failed to open file, errno 13 "Permission denied"': "can't be read: permission denied",
    "Unknown provider option: sdpa_kernl": "can't be loaded: cuda_options has sdpa_kernl, which is unknown",
}


@pytest.mark.parametrize("text", SIMULATED)
def test_messages_that_need_another_machine(text: str) -> None:
    assert load_fault(text) == SIMULATED[text]


def test_what_is_not_in_the_table_is_not_guessed() -> None:
    assert load_fault("something new") is None
    assert len({pattern for pattern, _ in LOAD_FAULTS}) == len(LOAD_FAULTS)


def test_a_known_version_is_named() -> None:
    assert ort.__version__ in message(FILES["opset"][0])


def test_a_model_with_two_symbols_for_one_axis_still_loads() -> None:
    session = Session(built("g (float[a] x, float[b] y) => (float[c] z) { z = Add(x, y) }"), device="cpu")
    assert session.run({"x": np.ones(3, np.float32), "y": np.ones(1, np.float32)})["z"].shape == (3,)
