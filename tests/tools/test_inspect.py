"""``maskport inspect``: the table, the pictures, JSON, exit codes, and files that are no model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from maskport.tools import cli
from typer.testing import CliRunner

from .attention_graphs import FAR, attention

invoke = CliRunner().invoke
# The scores are multiplied by the mask: a zero score still gets a weight.
MULTIPLIED = (
    "maskedI = Where (attendI, scoresI, least)",
    "onesI = Cast <to = 1> (attendI)\n maskedI = Mul (scoresI, onesI)",
)
# A Softmax that weighs no values.
CLASSIFIER = ("mixedI = MatMul (weightsI, queryI)", "maxI = ReduceMax (weightsI)\n mixedI = Mul (queryI, maxI)")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(name: str, *windows: int, **options: object) -> None:
    onnx.save(attention(*windows, **options), name)  # type: ignore[arg-type]


def test_the_table_and_the_pictures() -> None:
    save("m.onnx", 3, FAR, 3, 3)
    done = invoke(cli.app, ["inspect", "m.onnx"])
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["attention", "form", "heads", "mask", "empty", "rows"]
    assert lines[1].split() == ["layers.0,2-3.self_attn", "decomposed", "2", "x", "4", "A", "mean"]
    assert lines[2].split() == ["layers.1.self_attn", "decomposed", "2", "x", "4", "B", "mean"]
    assert "A  window(3, 0) & padding(attention_mask)" in lines
    assert "7 · · · · ■ ■ · ·   7 · · · · ■ ■ ■ ■" in lines
    assert lines.count("attention_mask pads 2 on the right (b=0) or left (b=1)") == 1
    assert lines[-1] == "m.onnx: 4 attentions, 2 distinct masks, each run against the graph."


def test_what_a_site_has_beside_its_mask_is_told() -> None:
    save("m.onnx", 3, scale=0.25)
    lines = invoke(cli.app, ["inspect", "m.onnx", "--no-check"]).stdout.splitlines()
    assert [line.strip() for line in lines[2:4]] == ["scale 0.25", "not run"]
    assert lines[-1] == "m.onnx: 1 attention, 1 distinct mask, 1 not run against the graph."


def test_json_is_the_object_of_the_contract() -> None:
    save("m.onnx", 3)
    done = invoke(cli.app, ["inspect", "m.onnx", "--json"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "format": 1,
        "model": "m.onnx",
        "sites": [
            {
                "name": "layers.0.self_attn",
                "node": "Softmax_20",
                "form": "decomposed",
                "q_heads": 2,
                "kv_heads": 2,
                "head_size": 4,
                "scale": 0.5,
                "softcap": 0.0,
                "sink": None,
                "cross": False,
                "mask": {
                    "text": "window(3, 0) & padding(attention_mask)",
                    "exact": True,
                    "causal": True,
                    "left": 3,
                    "right": 0,
                    "padding": ["attention_mask"],
                    "segments": [],
                    "dense": [],
                },
                "bias": None,
                "empty_rows": "mean",
                "assumes": [],
                "verified": True,
            }
        ],
        "unlifted": [],
    }
    done = invoke(cli.app, ["inspect", "m.onnx", "--json", "--no-check"])
    assert json.loads(done.stdout)["sites"][0]["verified"] is False


def test_attention_that_is_not_understood_is_exit_code_1() -> None:
    save("m.onnx", 3, replace=MULTIPLIED)
    done = invoke(cli.app, ["inspect", "m.onnx"])
    assert (done.exit_code, done.stderr) == (1, "")
    assert done.stdout.startswith("Not understood\n")
    assert "Softmax_21" in done.stdout
    assert done.stdout.endswith("0 distinct masks, 1 not understood.\n")
    done = invoke(cli.app, ["inspect", "m.onnx", "--json"])
    assert done.exit_code == 1
    (unlifted,) = json.loads(done.stdout)["unlifted"]
    assert set(unlifted) == {"node", "reason"}


def test_a_softmax_that_is_no_attention_is_no_fault() -> None:
    save("m.onnx", 3, replace=CLASSIFIER)
    done = invoke(cli.app, ["inspect", "m.onnx"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert "it is no attention" in " ".join(done.stdout.split())


def test_a_model_without_attention() -> None:
    model = '<ir_version: 10, opset_import: ["" : 18]> g (float[n] x) => (float[n] y) {y = Neg (x)}'
    onnx.save(onnx.parser.parse_model(model), "m.onnx")
    done = invoke(cli.app, ["inspect", "m.onnx"])
    assert (done.exit_code, done.output) == (0, "m.onnx has no attention.\n")


def _external(location: str, kept: bool) -> Callable[[], None]:
    def make() -> None:
        model = attention(3)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(64, np.float32), "weight"))
        onnx.save_model(model, "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
        model = onnx.load("m.onnx", load_external_data=False)
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = location
        onnx.save(model, "m.onnx")
        if not kept:
            Path("m.data").unlink()

    return make


def _write(content: bytes) -> Callable[[], object]:
    return lambda: Path("m.onnx").write_bytes(content)


NO_MODEL = {
    "missing": (lambda: None, "m.onnx is no file; give the path of an ONNX file"),
    "folder": (lambda: Path("m.onnx").mkdir(), "m.onnx is a folder; give the path of an ONNX file"),
    "empty": (_write(b""), "m.onnx is empty"),
    "zip": (_write(b"PK\x03\x04" + bytes(99)), "m.onnx is no ONNX model: it is a zip archive"),
    "text": (_write(b"hello\n"), "m.onnx is no ONNX model: "),
    "cut": (_write(attention(3).SerializeToString()[:900]), "m.onnx "),
    "no graph": (
        _write(onnx.ModelProto(ir_version=10).SerializeToString()),
        "m.onnx is no ONNX model: it has no graph",
    ),
    "no data": (_external("m.data", kept=False), "m.onnx misses its external data: 'weight' is in 'm.data'"),
    "data elsewhere": (_external("../m.data", kept=True), "m.onnx has external data outside its folder"),
}


@pytest.mark.parametrize(
    "command", [["inspect", "m.onnx"], ["diff", "good.onnx", "m.onnx"], ["diff", "m.onnx", "good.onnx"]]
)
@pytest.mark.parametrize("case", NO_MODEL)
def test_what_is_no_model_is_one_line_and_exit_code_2(case: str, command: list[str]) -> None:
    make, message = NO_MODEL[case]
    save("good.onnx", 3)
    make()
    done = invoke(cli.app, command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"maskport: {message}")
    assert done.stderr.count("\n") == 1
    assert "--verbose" not in done.stderr


def test_the_page_that_cannot_be_written_is_told_before_the_work() -> None:
    done = invoke(cli.app, ["inspect", "no.onnx", "--html", "."])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "maskport: . is a folder; give the name of a file\n"


HOSTILE = {
    "tag": "<script>alert(1)</script>",
    "quotes": "\"'&`",
    "override": "\u202eabc\u2066",
    "right to left": "אבג",
    "emoji": "😀",
    "control": "a\nb\x1b[2J",
    "long": "x" * 10_000,
    "markup": "[bold]x[/bold]",
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_are_printed_as_names(name: str) -> None:
    model = attention(3)
    for values in (model.graph.input, *([n.input for n in model.graph.node])):
        for place, value in enumerate(values):
            if value == "attention_mask":
                values[place] = name
            elif getattr(value, "name", None) == "attention_mask":
                value.name = name
    for node in model.graph.node:
        node.name = f"{name}{node.name}"
        for entry in node.metadata_props:
            entry.value = f"['', '{name}', 'softmax']"
    onnx.save(model, "m.onnx")
    done = invoke(cli.app, ["inspect", "m.onnx", "--html", "m.html"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", done.stdout)
    assert len(done.stdout) < 6000
    done = invoke(cli.app, ["inspect", "m.onnx", "--json"])
    assert json.loads(done.stdout)["sites"][0]["mask"]["padding"] == [name]
    done = invoke(cli.app, ["diff", "m.onnx", "m.onnx"])
    assert (done.exit_code, done.output) == (0, "1 attention the same.\n")
