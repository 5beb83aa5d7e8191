"""``maskport dryrun``: what it prints, its JSON, its page, and the budget as a gate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from maskport.tools import cli
from maskport.tools.dryrun import dryrun
from maskport.tools.dryrun.budget import Budget
from maskport.tools.errors import ToolError
from typer.testing import CliRunner

from ..attention_graphs import attention
from .forms import FORMS, model_of
from .graphs import INPUTS, MASK, PACKED, PLAIN, parse

invoke = CliRunner().invoke


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few models."""
    folder = tmp_path_factory.mktemp("models")
    onnx.save(attention(3, 3), folder / "attention.onnx")
    (folder / "packed.onnx").write_bytes(parse(PACKED))
    (folder / "plain.onnx").write_bytes(parse(PLAIN))
    (folder / "flash.onnx").write_bytes(model_of({"Attention causal": FORMS["Attention causal"]})[0])
    return folder


def test_the_report_fits_80_columns(files: Path) -> None:
    done = invoke(cli.app, ["dryrun", str(files / "attention.onnx"), "--input", "x0:2x7x8"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    words = " ".join(done.stdout.split())
    assert "attention.onnx on sm 90 (H100), ONNX Runtime " in words
    assert "layers.0-1.self_attn Softmax math 1 window(3, 0) & padding(attention_mask)" in words
    assert "CUDA graph can be captured" in words
    assert words.endswith("Times and values are unknown: no kernel ran.")


def test_json_is_the_report_alone(files: Path) -> None:
    done = invoke(cli.app, ["dryrun", str(files / "flash.onnx"), "--json", "--sm", "80"])
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["format"], found["sm"], found["model"]) == (1, 80, "flash.onnx")
    assert found["steady"]["kernels"] == [{"name": "flash::flash_fwd_kernel", "count": 1}]
    assert [site["kernel"] for site in found["attention"]] == ["flash"]


def test_two_models_side_by_side(files: Path) -> None:
    arguments = ["dryrun", str(files / "attention.onnx"), "--compare", str(files / "plain.onnx"), "--no-graph"]
    done = invoke(cli.app, [*arguments, "--input", "x0:2x7x8", "--input", "attention_mask:2x7"])
    assert done.exit_code == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "A attention.onnx B plain.onnx launches" in " ".join(done.stdout.split())
    done = invoke(cli.app, [*arguments, "--json"])
    assert json.loads(done.stdout)["compared"]["steady"]["launches"] == 2


def test_inputs_of_a_file_decide_on_shapes(files: Path, tmp_path: Path) -> None:
    np.savez(
        tmp_path / "inputs.npz", attention_mask=MASK, x=np.ones((2, 5, 8), np.float16), w=np.ones((8, 8), np.float16)
    )
    arguments = ["dryrun", str(files / "packed.onnx"), "--inputs", str(tmp_path / "inputs.npz"), "--json", "--no-graph"]
    found = json.loads(invoke(cli.app, arguments).stdout)
    assert found["copies"][-1] == {"kind": "d2h", "bytes": 5 * 8 * 2, "where": "after", "node": None}


@pytest.mark.parametrize(
    ("model", "budget", "over"),
    [
        ("flash", "launches=1,library_calls=0,d2h=1,h2d=3,d2d=0,inside=0,cpu_nodes=0,memory_mb=90", []),
        ("flash", "attention=flash+cudnn,graph", []),
        ("flash", "launches=0", ["launches is 1, at most 0 in the budget"]),
        ("attention", "attention=flash", ["attention is math, flash in the budget: layers.0-1.self_attn"]),
        ("packed", "graph", ["no CUDA graph: runs but wrong: NonZero unnamed NonZero 1 copies 4 bytes to the host"]),
    ],
)
def test_a_budget_decides_on_the_exit_code(files: Path, model: str, budget: str, over: list[str]) -> None:
    arguments = ["dryrun", str(files / f"{model}.onnx"), "--budget", budget]
    done = invoke(cli.app, arguments)
    assert done.exit_code == int(bool(over)), done.output
    words = " ".join(done.stdout.split())
    assert all(line in words for line in over or ["is within the budget."])
    assert len(json.loads(invoke(cli.app, [*arguments, "--json"]).stdout)["over_budget"]) == len(over)


@pytest.mark.parametrize("text", ["launches", "launches=few", "speed=3", "attention=fast", "attention=", "", "graph=1"])
def test_a_budget_that_can_not_be_meant(text: str) -> None:
    with pytest.raises(ToolError, match=r"--budget has .*; give a number for launches, "):
        Budget.parse(text)


def test_options_of_the_provider_reach_it(files: Path) -> None:
    arguments = ["dryrun", str(files / "flash.onnx"), "--option", "sdpa_kernel=2", "--json", "--no-graph"]
    found = json.loads(invoke(cli.app, arguments).stdout)
    assert [site["kernel"] for site in found["attention"]] == ["memory_efficient"]
    assert found["cuda_graph"] == {"capturable": None, "reason": None}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.onnx"], "none.onnx is no file"),
        (["plain.onnx", "--sm", "42"], "sm 42 is unknown; give one of 75 (T4), "),
        (["plain.onnx", "--cudnn", "new"], "cudnn is 'new'; use accept, refuse, old, absent"),
        (["plain.onnx", "--option", "x"], "--option 'x' is not of the form NAME=VALUE"),
        (["plain.onnx", "--budget", "x"], "--budget has 'x'"),
        (["plain.onnx", "--input", "z:3"], "inputs has z; the model's inputs are x"),
        (["plain.onnx", "--inputs", "none.npz"], "none.npz is no file"),
        (["plain.onnx", "--timeout", "0.01"], "took longer than 0.01 s"),
    ],
)
def test_what_can_not_be_run_is_one_line_and_exit_code_2(files: Path, arguments: list[str], said: str) -> None:
    done = invoke(cli.app, ["dryrun", str(files / arguments[0]), *arguments[1:]])
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_page_shows_every_launch_by_node(files: Path, tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    arguments = ["dryrun", str(files / "attention.onnx"), "--input", "x0:2x7x8", "--html", str(page)]
    assert invoke(cli.app, arguments).exit_code == 0
    text = page.read_text()
    trace = dryrun(files / "attention.onnx", 90, {"x0": (2, 7, 8)}, graph=False)
    assert text.count("grid ") == trace.launches - trace.library_calls
    assert text.count("<rect ") >= trace.launches
    assert "http" not in text
    assert "<script" not in text


def test_names_of_a_graph_are_no_part_of_the_page(tmp_path: Path) -> None:
    from maskport.tools.dryrun.page import page

    model = onnx.load_from_string(parse(PACKED))
    model.graph.node[0].name = "<script>alert(1)</script>"
    trace = dryrun(model.SerializeToString(), 90, INPUTS, graph=False)
    model.graph.node[1].name = "<b>"
    assert "<script>" not in page(trace)
    assert "&lt;b&gt;" in page(dryrun(model.SerializeToString(), 90, INPUTS, graph=False))
