"""Hostile input through the command line: an answer or one clear line, never a traceback from inside a library."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from maskport.tools import cli
from typer.testing import CliRunner

from .tiny_models import tiny

SRC = np.ones((2, 3, 4), np.float32)
MASK = np.ones((2, 3), np.int64)
GOOD = {"src": SRC, "attention_mask": MASK}

# By file name: arrays for a .npz, an array for a .npy, text or bytes as they are, anything else as JSON.
FILES: dict[str, Any] = {
    "good.npz": GOOD,
    "swapped.npz": {"src": SRC.astype(">f4"), "attention_mask": MASK.astype(">i8")},
    "fortran.npz": {"src": np.asfortranarray(SRC), "attention_mask": np.asfortranarray(MASK)},
    "nan.npz": {**GOOD, "src": np.full_like(SRC, np.nan)},
    "infinite.npz": {**GOOD, "src": np.full_like(SRC, np.inf)},
    "no_length.npz": {"src": SRC[:, :0], "attention_mask": MASK[:, :0]},
    "no_batch.npz": {"src": SRC[:0], "attention_mask": MASK[:0]},
    "wrong_name.npz": {"sorce": SRC, "attention_mask": MASK},
    "missing.npz": {"src": SRC},
    "none.npz": {},
    "doubles.npz": {**GOOD, "src": SRC.astype(np.float64)},
    "integers.npz": {**GOOD, "src": SRC.astype(np.int32)},
    "complex.npz": {**GOOD, "src": SRC.astype(np.complex64)},
    "dates.npz": {**GOOD, "src": np.zeros((2, 3, 4), "datetime64[s]")},
    "records.npz": {**GOOD, "src": np.zeros((2, 3, 4), [("a", "f4")])},
    "strings.npz": {**GOOD, "src": np.full((2, 3, 4), "x")},
    "objects.npz": {**GOOD, "src": np.full((2, 3, 4), None)},
    "scalar.npz": {**GOOD, "src": np.float32(1)},
    "rank.npz": {**GOOD, "src": SRC[0]},
    "width.npz": {**GOOD, "src": SRC[..., :3]},
    "lengths.npz": {**GOOD, "src": SRC[:, :2]},
    "one.npy": SRC,
    "cut.npz": b"PK\x03\x04 and no more",
    "text.npz": "not a zip",
    "empty.npz": b"",
    "text.npy": "not an array",
    "inputs.csv": "1,2\n",
    "good.json": {"src": SRC.tolist(), "attention_mask": MASK.tolist()},
    "nan.json": '{"src": [[[NaN, 1, 1, 1]]], "attention_mask": [[1]]}',
    "broken.json": "{",
    "binary.json": b"\xff\xfe\x00",
    "list.json": [1, 2],
    "ragged.json": {"src": [[[1, 2, 3, 4]], [[1]]], "attention_mask": [[1], [1]]},
    "strings.json": {"src": [[["a", "b", "c", "d"]]], "attention_mask": [[1]]},
    "object.json": {"src": {"a": 1}, "attention_mask": [[1]]},
    "null.json": {"src": None, "attention_mask": [[1]]},
    "large.json": {"src": [[[1, 1, 1, 1]]], "attention_mask": [[10**30]]},
    "fraction.json": {"src": [[[1, 1, 1, 1]]], "attention_mask": [[0.5]]},
    "deep.json": "[" * 100_000,
    "good.onnx": tiny(),
    "nan.onnx": tiny("always nan"),
    "dropped.onnx": tiny("dropped"),
    "baked.onnx": tiny("baked length"),
    "cut.onnx": tiny()[:200],
    "text.onnx": "hello\n",
    "empty.onnx": b"",
    "zip.onnx": b"PK\x03\x04" + bytes(100),
    "random.onnx": bytes(range(256)),
    "specs.py": """
import sys
import torch
from torch import nn

X = torch.zeros(2, 3, 4)
AXES = {"input": {0: "batch", 1: "seq"}}

class Noisy(nn.Linear):
    def forward(self, input):
        print("noise")
        return super().forward(input)

class Raises(nn.Module):
    def forward(self, input):
        raise RuntimeError("the module's own error")

class Branches(nn.Module):
    def forward(self, input):
        return input if input.sum() > 0 else -input

class Mean(nn.Module):
    def forward(self, src, attention_mask):
        keep = attention_mask[..., None].to(src.dtype)
        return src + (src * keep).sum(1, keepdim=True) / keep.sum(1, keepdim=True).clamp(min=1)

mean = lambda: (Mean(), {"src": X, "attention_mask": torch.ones(2, 3, dtype=torch.int64)}, None)
print("noise")
print("noise", file=sys.stderr)
good = lambda: (Noisy(4, 4), {"input": X}, AXES)
raises = lambda: (Raises(), {"input": X}, AXES)
branches = lambda: (Branches(), {"input": X}, AXES)
names = lambda: (Noisy(4, 4), {"inpt": X}, AXES)
axes = lambda: (Noisy(4, 4), {"input": X}, {"inpt": {0: "batch"}})
far = lambda: (Noisy(4, 4), {"input": X}, {"input": {7: "batch"}})
single = lambda: (Noisy(4, 4), {"input": X[:1]}, AXES)
strings = lambda: (Noisy(4, 4), {"input": "x"}, None)
nothing = lambda: None
def fails():
    raise OSError("no weights")
""",
    "broken.py": "def make(:\n",
    "plain/notes.txt": "no model here",
    "odd/config.json": '{"model_type": "no-such-model"}',
    "bad/config.json": "{",
}

RUN = ["run", "good.onnx", "--device", "cpu"]
EXPORT = ["export", "-o", "out.onnx"]
VALIDATE = ["validate", "good.onnx", "--quick"]


def inputs(name: str) -> list[str]:
    return [*RUN, "--inputs", name]


def sizes(*shapes: str) -> list[str]:
    return [*RUN, *(part for shape in shapes for part in ("--input", shape))]


ANSWERED = [
    (RUN, 0),
    (inputs("good.npz"), 0),
    (inputs("swapped.npz"), 0),
    (inputs("fortran.npz"), 0),
    (inputs("nan.npz"), 0),
    (inputs("infinite.npz"), 0),
    (inputs("good.json"), 0),
    (inputs("nan.json"), 0),
    (sizes("src:5x1x4"), 0),
    (sizes("src:1x1000x4", "attention_mask:1x1000"), 0),
    (["run", "nan.onnx"], 1),
    ([*VALIDATE, "--against", "good.onnx"], 0),
    ([*VALIDATE, "--against", "good.onnx", "--inputs", "good.npz", "--device", "auto"], 0),
    ([*VALIDATE, "--against", "specs.py:mean"], 0),
    ([*VALIDATE, "--against", "specs.py:mean", "--inputs", "swapped.npz"], 0),
    ([*VALIDATE, "--against", "specs.py:mean", "--inputs", "fortran.npz"], 0),
    ([*VALIDATE, "--against", "specs.py:mean", "--inputs", "width.npz"], 1),
    ([*VALIDATE, "--against", "dropped.onnx"], 1),
    ([*VALIDATE, "--against", "nan.onnx"], 1),
    ([*VALIDATE, "--against", "baked.onnx"], 1),
    (["validate", "baked.onnx", "--against", "good.onnx"], 1),
    (["validate", "good.onnx"], 0),
    (["validate", "dropped.onnx"], 1),
    (["validate", "nan.onnx"], 1),
    (["validate", "baked.onnx"], 1),
]

REFUSED = [
    (["run", "no.onnx"], "no.onnx is no file; give the path"),
    (["run", "plain"], "plain is a folder; give the path"),
    (["run", "cut.onnx"], "cut.onnx "),
    (["run", "text.onnx"], "text.onnx "),
    (["run", "empty.onnx"], "empty.onnx is empty"),
    (["run", "zip.onnx"], "zip archive"),
    (["run", "random.onnx"], "random.onnx "),
    (["run", "good.npz"], "good.npz is no ONNX model"),
    (["run"], "Missing argument 'IN.onnx'. See 'maskport run --help'"),
    ([*RUN, "--device", "tpu"], "device 'tpu' is unknown; use"),
    ([*RUN, "--device", "cuda:x"], "device 'cuda:x' is unknown; use"),
    ([*RUN, "--device", ""], "device '' is unknown; use"),
    ([*RUN, "-o", "plain"], "plain is a folder; give"),
    ([*RUN, "-o", "good.npz/out.npz"], "can't be written"),
    (inputs("no.npz"), "no.npz is no file; give .npz, .npy or .json"),
    (inputs("plain"), "plain is a folder; give .npz, .npy or .json"),
    (inputs("inputs.csv"), "inputs.csv is no file of inputs; give .npz, .npy or .json"),
    (inputs("no_batch.npz"), "the batch is empty: give at least one row"),
    (inputs("wrong_name.npz"), "unknown input sorce; missing input src; the model's inputs are src, attention_mask"),
    (inputs("missing.npz"), "missing input attention_mask"),
    (inputs("none.npz"), "missing inputs src, attention_mask"),
    (inputs("doubles.npz"), r"input 'src' is float64 .* the model takes float32 .*cast it with .astype\('float32'\)"),
    (inputs("integers.npz"), "input 'src' is int32"),
    (inputs("complex.npz"), "input 'src' is complex64"),
    (inputs("dates.npz"), "input 'src' is datetime64"),
    (inputs("records.npz"), "input 'src' is .* the model takes float"),
    (inputs("strings.npz"), "input 'src' is <U1"),
    (inputs("objects.npz"), "it holds Python objects; save arrays of numbers"),
    (inputs("scalar.npz"), "it takes 3 dimensions"),
    (inputs("rank.npz"), "it takes 3 dimensions"),
    (inputs("width.npz"), "axis 2 must be 4"),
    (inputs("lengths.npz"), "seq is 2 in 'src'"),
    (inputs("one.npy"), "one.npy holds one array, the model takes src, attention_mask"),
    (inputs("cut.npz"), "cut.npz can't be read: "),
    (inputs("text.npz"), "text.npz can't be read: numpy doesn't know it; save it with numpy.savez"),
    (inputs("empty.npz"), "empty.npz can't be read: "),
    (inputs("text.npy"), "text.npy can't be read: numpy doesn't know it; save it with numpy.savez"),
    (inputs("huge.npy"), "huge.npy can't be read: "),
    (inputs("broken.json"), "broken.json can't be read: "),
    (inputs("binary.json"), "binary.json can't be read: "),
    (inputs("deep.json"), "deep.json can't be read: "),
    (inputs("list.json"), "list.json holds a list; give an object with one entry per input"),
    (inputs("ragged.json"), "input 'src' is no array of numbers: its lists have different lengths"),
    (inputs("strings.json"), "input 'src' is no array of numbers: it holds text, objects"),
    (
        inputs("object.json"),
        "input 'src' is no array of numbers: it holds text, objects or numbers",
    ),
    (inputs("null.json"), "input 'src' is no array of numbers: it holds text, objects or numbers"),
    (
        inputs("large.json"),
        "input 'attention_mask' is no array of numbers: it holds text, objects or numbers",
    ),
    (inputs("fraction.json"), "input 'attention_mask' is float64"),
    ([*inputs("good.npz"), "--input", "src:2x3x4"], "--input is for inputs that are drawn"),
    (sizes("src"), "--input 'src' is not of the form NAME:DIMxDIM, for example src:2x7x64"),
    (sizes("src:"), "not of the form"),
    (sizes("src:axb"), "not of the form"),
    (sizes("src:-1x3x4"), "not of the form"),
    (sizes("zzz:2x3"), "--input names zzz; the model's inputs are src, attention_mask"),
    (sizes("src:2x3"), "--input gives 'src' 2 dimensions, the model takes"),
    (sizes("src:2x3x4", "src:2x3x4"), "names 'src' twice"),
    (sizes("src:2x3x5"), "axis 2 must be 4"),
    (sizes("src:0x3x4"), "the batch is empty"),
    (sizes("src:2x3x4", "attention_mask:3x3"), "batch is 2 in 'src'"),
    (sizes("src:100000x100000x4"), "the drawn inputs would be .* GiB, at most 1 is drawn; give --inputs FILE"),
    (sizes("src:99999999999999999999x3x4"), "at most 1 is drawn"),
    ([*EXPORT, "no-such-model"], "'no-such-model' names no model"),
    ([*EXPORT, "specs.py"], "'specs.py' names no model"),
    ([*EXPORT, "no.py:make"], "there is no file no.py"),
    ([*EXPORT, "broken.py:make"], "can't be imported: SyntaxError"),
    ([*EXPORT, "no_such_module:make"], "can't be imported: ModuleNotFoundError"),
    ([*EXPORT, "specs.py:fails"], "raised: OSError: no weights"),
    ([*EXPORT, "specs.py:nothing"], "returned None; it must return"),
    ([*EXPORT, "specs.py:names"], "example_inputs has inpt; forward takes input"),
    ([*EXPORT, "specs.py:axes"], "dynamic_shapes has 'inpt'; the example tensors are input"),
    ([*EXPORT, "specs.py:far"], "dynamic_shapes.'input'. has 7: 'batch'"),
    ([*EXPORT, "specs.py:single"], "give an example with a size of 2 or more"),
    ([*EXPORT, "hf:no-such-folder"], "no-such-folder"),
    ([*EXPORT, "hf:plain"], "config.json"),
    ([*EXPORT, "hf:odd"], "no-such-model"),
    ([*EXPORT, "hf:bad"], "bad"),
    (["export", "encoder"], "Missing option '-o' / '--output'. See 'maskport export --help'"),
    (["export", "encoder", "-o", "plain"], "plain is a folder; give"),
    (["export", "encoder", "-o", "good.npz/out.onnx"], "can't be written"),
    ([*EXPORT, "encoder", "--opset", "x"], "'--opset': Input should be a valid integer, .*[.] See"),
    ([*EXPORT, "specs.py:good", "--opset", "-1"], "opset_version is -1, but PyTorch wrote opset 18"),
    ([*EXPORT, "encoder", "--no-such-option"], "No such option: --no-such-option[.] See"),
    ([*EXPORT, "encoder", "--dtype", "int8"], "int8"),
    (["validate", "no.onnx", "--against", "good.onnx"], "no.onnx is no file"),
    (["validate", "text.onnx", "--against", "good.onnx"], "text.onnx "),
    (["validate", "good.onnx", "--expect", "causal & x"], "--expect 'causal & x' is no mask"),
    (
        ["validate", "good.onnx", "--expect", "padding(mask)"],
        "--expect names 'mask'; the inputs are src, attention_mask",
    ),
    (["validate", "good.onnx", "--self-test"], "no attention of the file can be written anew"),
    ([*VALIDATE, "--against", "no.onnx"], "no.onnx is no file"),
    ([*VALIDATE, "--against", "cut.onnx"], "cut.onnx "),
    ([*VALIDATE, "--against", "plain"], "'plain' names no model"),
    ([*VALIDATE, "--against", "good.npz"], "'good.npz' names no model"),
    ([*VALIDATE, "--against", "specs.py:nothing"], "returned None"),
    ([*VALIDATE, "--against", "specs.py:raises"], "fails on its own example: RuntimeError: the module's own error"),
    ([*VALIDATE, "--against", "specs.py:mean", "--inputs", "strings.npz"], "input 'src' is <U1, which PyTorch"),
    ([*VALIDATE, "--against", "specs.py:mean", "--inputs", "dates.npz"], "input 'src' is datetime64"),
    ([*VALIDATE, "--against", "specs.py:mean", "--inputs", "wrong_name.npz"], "has sorce; forward takes src"),
    ([*VALIDATE, "--against", "specs.py:mean", "--inputs", "missing.npz"], "example_inputs lacks attention_mask"),
    ([*VALIDATE, "--against", "good.onnx", "--inputs", "missing.npz"], "missing input attention_mask"),
    ([*VALIDATE, "--against", "good.onnx", "--inputs", "strings.npz"], "input 'src' is <U1"),
    ([*VALIDATE, "--against", "good.onnx", "--inputs", "rank.npz"], "it takes 3 dimensions"),
    ([*VALIDATE, "--against", "good.onnx", "--junit", "plain"], "plain is a folder"),
    ([*VALIDATE, "--against", "good.onnx", "--device", "tpu"], "device 'tpu' is unknown"),
]


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with the files, as the current one."""
    path = tmp_path_factory.mktemp("hostile")
    for name, content in FILES.items():
        file = path / name
        file.parent.mkdir(exist_ok=True)
        if isinstance(content, np.ndarray):
            np.save(file, content)
        elif file.suffix == ".npz" and isinstance(content, dict):
            np.savez(file, **content)
        elif isinstance(content, bytes):
            file.write_bytes(content)
        else:
            file.write_text(content if isinstance(content, str) else json.dumps(content))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 1 << 20)})
    (path / "huge.npy").write_bytes(header.getvalue())
    before = list(sys.path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        yield path
    sys.path[:] = before


def named(value: object) -> str:
    """Name a test after the arguments of its command."""
    return " ".join(value) if isinstance(value, list) else ""


@pytest.mark.parametrize(("arguments", "code"), ANSWERED, ids=named)
def test_what_can_be_answered_is(arguments: list[str], code: int) -> None:
    # What a module prints is shown where something was found, and only there.
    said = "noise\n" if code and "specs.py:mean" in arguments else ""
    done = CliRunner().invoke(cli.app, [*arguments, "--json"])
    assert (done.exit_code, done.stderr) == (code, said)
    assert json.loads(done.stdout)["ok"] is (code == 0)
    done = CliRunner().invoke(cli.app, arguments)
    assert (done.exit_code, done.stderr) == (code, said)
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=named)
def test_what_cannot_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli.app, arguments)
    assert isinstance(done.exception, SystemExit)
    assert (done.exit_code, done.stdout) == (2, "")
    assert re.search(message, done.stderr)
    assert done.stderr.startswith("maskport")
    assert done.stderr.count("\n") == 1
    assert "--verbose" not in done.stderr  # nothing here is unexpected
    assert not Path("out.onnx").exists()


@pytest.mark.parametrize(
    ("spec", "message"),
    [("raises", "the module's own error"), ("branches", "specs.py")],
)
def test_a_module_that_cannot_be_exported_is_told_in_at_most_ten_lines(spec: str, message: str) -> None:
    done = CliRunner().invoke(cli.app, [*EXPORT, f"specs.py:{spec}"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") <= 10
    assert "Traceback" not in done.stderr


def test_an_unexpected_error_is_one_line_and_verbose_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("inside a library\nand more")

    monkeypatch.setattr("maskport.tools.inputs.draw_inputs", fail)
    done = CliRunner().invoke(cli.app, RUN)
    assert done.exit_code == 2
    assert done.stderr == ("maskport: ZeroDivisionError: inside a library; run it with --verbose for the traceback\n")
    done = CliRunner().invoke(cli.app, [*RUN, "--verbose"])
    assert done.exit_code == 2
    assert "Traceback (most recent call last)" in done.stderr
    assert "in fail" in done.stderr


def test_outputs_are_written_whatever_their_names(folder: Path) -> None:
    done = CliRunner().invoke(cli.app, [*inputs("good.npz"), "-o", "new/out.npz"])
    assert done.exit_code == 0
    assert zipfile.is_zipfile(folder / "new/out.npz")
    with np.load("new/out.npz") as found:
        np.testing.assert_allclose(found["output"], SRC + 1)


def test_a_process_of_its_own_prints_json_alone_though_its_module_prints() -> None:
    command = [sys.executable, "-c", "from maskport.tools.cli import main; main()"]
    done = subprocess.run(
        [*command, "export", "specs.py:good", "-o", "noisy.onnx", "--json"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["outputs"] == ["output"]
    done = subprocess.run([*command, "run", "cut.onnx"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    done = subprocess.run([*command, *inputs("lengths.npz")], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
