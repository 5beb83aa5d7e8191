"""``maskport optimize``: the table, JSON, the page, exit codes, and what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from maskport.export import ExportError, ProofFailed, inspect, optimize, optimizer
from maskport.export.optimized import Optimized, OptimizedSite
from maskport.tools import cli, diff
from maskport.tools.optimize_table import assumptions, groups, refusals
from typer.testing import CliRunner

from .attention_graphs import FAR, attention
from .test_inspect_page import Elements

invoke = CliRunner().invoke
UNREAD = (
    "maskedI = Where (attendI, scoresI, least)",
    "onesI = Cast <to = 1> (attendI)\n maskedI = Mul (scoresI, onesI)",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(attention(3, 3), "m.onnx")
    return tmp_path


def run(*arguments: str, code: int = 0) -> str:
    done = invoke(cli.app, ["optimize", "m.onnx", "-o", "fast.onnx", *arguments])
    assert done.exit_code == code, done.output
    if code == 0:
        assert done.stderr == ""
    return done.stdout if code == 0 else done.stderr


def test_the_table_says_what_became_what_and_what_was_checked() -> None:
    lines = [line.rstrip() for line in run().splitlines()]
    assert max(map(len, lines)) <= 80
    facts = {line[:15].strip(): line[15:].strip() for line in lines if line[:15].strip()}
    assert lines[0] == "layers.0-1.self_attn (2)"
    assert lines[1].split(maxsplit=1) == ["mask", "window(3, 0) & padding(attention_mask)"]
    assert lines[2].split(maxsplit=1) == ["was", "decomposed"]
    became = lines[3].split(maxsplit=1)[1]
    assert became in {site.kernel for site in optimize("m.onnx").sites}
    assert facts["target"] == "cpu"
    assert facts["padding rows"].startswith("any: finite")
    assert "of source and result, by onnxruntime" in facts["checked"]
    assert any("largest difference on valid rows" in line for line in lines)
    assert facts["wrote"].startswith("fast.onnx, ")


def test_json_is_the_object_of_the_contract() -> None:
    found = json.loads(run("--json"))
    assert {"format", "target", "padding_rows", "assumes", "checked", "sites", "passes"} <= set(found)
    assert (found["format"], found["target"], found["padding_rows"], found["checked"]) == (1, "cpu", "any", "cpu")
    assert [site["name"] for site in found["sites"]] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert set(found["sites"][0]) >= {"name", "mask", "kernel", "why", "refused"}
    assert all(set(entry) == {"name", "changed"} for entry in found["passes"])


def test_the_result_has_the_masks_of_the_source() -> None:
    run()
    assert not diff("m.onnx", "fast.onnx").changed
    assert invoke(cli.app, ["diff", "m.onnx", "fast.onnx"]).exit_code == 0


def test_claims_are_counted_as_such() -> None:
    onnx.save(attention(FAR), "m.onnx")
    run("--assume", "right-padding")
    claimed = sum(site.claimed for site in inspect("fast.onnx").sites)
    assert claimed == 1
    assert "1 as the file claims" in invoke(cli.app, ["inspect", "fast.onnx"]).stdout
    assert "1 as the new file claims" in invoke(cli.app, ["diff", "m.onnx", "fast.onnx"]).stdout


def test_what_is_granted_is_told_in_words() -> None:
    onnx.save(attention(FAR), "m.onnx")
    text = " ".join(run("--assume", "right-padding", "--packing", "none").split())
    assert (
        "attention_mask is padded on the right alone (--assume right-padding); Session checks it at every run" in text
    )


def test_a_file_that_can_not_be_improved_is_said_to_be_so_and_written() -> None:
    onnx.save(attention(3, replace=UNREAD), "m.onnx")
    text = run()
    assert "Nothing was changed: the file is the source, and the notes say why." in text
    assert "note" in text
    assert not diff("m.onnx", "fast.onnx").changed
    assert json.loads(run("--json"))["changed"] is False


def test_a_result_that_is_not_the_source_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ProofFailed("at batch=2,seq=7,mask=left 'y' differs from the source by 1 (allowed: 5e-05) on valid rows")

    monkeypatch.setattr(optimizer, "prove", fails)
    assert "maskport: at batch=2,seq=7,mask=left 'y' differs from the source" in run(code=1)
    assert not Path("fast.onnx").exists()


def test_without_its_check_nothing_is_known() -> None:
    assert "nothing was run, so nothing is known of the result" in run("--no-check")
    assert json.loads(run("--no-check", "--json"))["checked"] == "not run"


@pytest.mark.parametrize(
    "wrong",
    [
        ("--target", "tpu"),
        ("--dtype", "int3"),
        ("--padding-rows", "none"),
        ("--packing", "tight"),
        ("--assume", "luck"),
        ("--repair", "everything"),
        ("--html", "."),
    ],
)
def test_what_does_not_exist_is_named(wrong: tuple[str, str]) -> None:
    said = run(*wrong, code=2)
    assert said.count("\n") == 1
    assert wrong[1] in said
    assert not Path("fast.onnx").exists()


def test_a_file_that_is_no_model_is_told() -> None:
    Path("m.onnx").write_bytes(b"no model")
    assert "m.onnx" in run(code=2)


def test_the_page_is_well_formed_and_says_the_same() -> None:
    run("--html", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    found = Elements(page)
    text = " ".join(found.texts)
    assert "maskport optimize" in text
    assert "What became of it" in text
    assert optimize("m.onnx").sites[0].kernel in text
    assert "at most on valid rows" in text
    assert found.count("script") == 0


def sites(*names: str, **others: Any) -> list[OptimizedSite]:
    facts: dict[str, Any] = {"mask": "full", "source_form": "decomposed", "kernel": "k", "why": "w", "refused": {}}
    return [OptimizedSite(name, **{**facts, **others}) for name in names]


def test_attention_of_which_the_same_is_told_is_one_group() -> None:
    found = list(groups([*sites("layers.0", "layers.1"), *sites("layers.2", kernel="other"), *sites("layers.3", "x")]))
    assert [name for name, _ in found] == ["layers.0-1,3, x (4)", "layers.2"]


def test_kernels_that_were_refused_for_the_same_reasons_share_a_line() -> None:
    (site,) = sites("a", refused={"one": ["too small"], "two": ["too small"], "three": ["too small", "too large"]})
    assert refusals(site) == [("one, two", "too small"), ("three", "too small; too large")]


def test_an_assumption_is_told_once_with_all_that_ask_for_it() -> None:
    entries = [{"input": "m", "check": "binary", "axis": -1, "source": f"layers.{n}"} for n in range(3)]
    assert assumptions(entries) == ["m holds 0 and 1 alone (layers.0-2)"]


def test_names_of_any_kind_can_be_printed() -> None:
    from maskport.tools.optimize_page import optimize_page

    hostile = "<script>alert(1)</script>\u202e\x00"
    source = onnx.load("m.onnx")
    made = Optimized(
        None, source, "cpu", None, "any", tuple(sites(hostile, why=hostile)), (), (), "cpu", None, True, (hostile,)
    )
    assert Elements(optimize_page(made, inspect("m.onnx"))).count("script") == 0


@pytest.mark.parametrize(
    ("key", "written", "message"),
    [
        ("maskport.io", "{", "maskport.io is no JSON"),
        ("maskport.io", '{"version": 99}', "maskport.io has version 99, this Maskport reads version 1"),
        ("maskport.io", '{"version": 1, "inputs": []}', "maskport.io is damaged: it has no inputs by their names"),
        ("maskport.certificate", "[]", "maskport.certificate is damaged"),
        ("maskport.certificate", "{", "maskport.certificate is damaged"),
    ],
)
def test_what_a_file_says_of_itself_is_refused_if_it_is_damaged(key: str, written: str, message: str) -> None:
    model = attention(FAR)
    model.metadata_props.add(key=key, value=written)
    with pytest.raises(ExportError, match=message):
        optimize(model.SerializeToString())
