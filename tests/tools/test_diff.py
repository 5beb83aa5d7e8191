"""``diff``: which sites are the same, what changed, and how it is shown."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from maskport.export.inspector import inspect
from maskport.export.report import Report, SiteReport, UnliftedReport
from maskport.models import Adjacency, Causal, Dense, Full, K, KeyPadding, Mask, Prefix, Q, Segments, Window
from maskport.tools import cli, diff
from typer.testing import CliRunner

from .attention_graphs import FAR, attention

invoke = CliRunner().invoke
PAD = KeyPadding("attention_mask")
SITE = SiteReport(
    "layers.0", "softmax", "decomposed", 8, 2, 16, 0.25, 0.0, None, False, Causal() & PAD, None, "mean", (), True
)


def site(name: str = "layers.0", **facts: Any) -> SiteReport:
    return dataclasses.replace(SITE, name=name, **facts)


def report(*sites: SiteReport, unlifted: int = 0) -> Report:
    return Report("m.onnx", sites, tuple(UnliftedReport(f"softmax_{n}", "odd") for n in range(unlifted)))


def names(*numbers: int) -> list[str]:
    return [f"layers.{number}.self_attn" for number in numbers]


def test_a_model_is_the_same_as_itself_whatever_its_nodes_are_called() -> None:
    model = attention(3, FAR)
    renamed = attention(3, FAR, scopes=None)
    for node in renamed.graph.node:
        node.name = f"other_{node.name}"
    for new in (model, renamed, model.SerializeToString()):
        found = diff(model, new)
        assert not found.changed
        assert len(found.sites) == 2


def test_masks_that_mean_the_same_are_the_same() -> None:
    a = report(site(mask=Window(-1, 0) & Causal() & PAD))
    assert not diff(a, report(SITE)).changed
    assert not diff(report(site(scale=0.25)), report(site(scale=0.25001))).changed
    assert not diff(report(site(form="ai.onnx.Attention", empty_rows="zero", node="n")), report(SITE)).changed


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("q_heads", 4),
        ("kv_heads", 8),
        ("head_size", None),
        ("scale", 0.24),
        ("softcap", 50.0),
        ("sink", "s"),
        ("bias", "alibi"),
        ("cross", True),
    ],
)
def test_each_fact_is_compared(fact: str, value: object) -> None:
    found = diff(report(SITE), report(site(**{fact: value})))
    assert found.changed
    assert found.sites[0].facts == {fact: (getattr(SITE, fact), value)}
    assert found.sites[0].mask is None


def test_a_mask_that_changed_comes_with_its_smallest_witness() -> None:
    found = diff(attention(5, FAR), attention(6, FAR))
    changed, same = found.sites
    assert not same.changed
    assert changed.mask is not None
    assert (str(changed.mask.old), str(changed.mask.new)) == (f"window(5, 0) & {PAD}", f"window(6, 0) & {PAD}")
    witness = changed.mask.witness
    assert witness is not None
    assert (witness.sizes.k_len, witness.q, witness.k) == (7, 6, 0)
    assert found.to_json()["sites"][0]["mask"]["witness"] == {
        "q_len": 7,
        "k_len": 7,
        "past": 0,
        "b": 0,
        "h": 0,
        "q": 6,
        "k": 0,
        "attends": True,
        "tensors": {"attention_mask": [[1] * 7]},
    }


@pytest.mark.parametrize(
    ("old", "new", "renamed"),
    [
        (PAD, KeyPadding("mask"), {"attention_mask": "mask"}),
        (Segments("a", "b"), Segments("c", "d"), {"a": "c", "b": "d"}),
        (KeyPadding("a") & ~KeyPadding("b"), KeyPadding("d") & ~KeyPadding("c"), {"a": "d", "b": "c"}),
        (KeyPadding("a") & Dense("x"), KeyPadding("a") & Dense("y"), {"x": "y"}),
        (KeyPadding("a"), KeyPadding("b", 1), {}),
        (KeyPadding("a"), Prefix("b"), {}),
        (KeyPadding("a"), Causal(), {}),
    ],
)
def test_a_renamed_tensor_is_a_difference_and_said_so(old: Mask, new: Mask, renamed: dict[str, str]) -> None:
    found = diff(report(site(mask=old)), report(site(mask=new)))
    change = found.sites[0].mask
    assert change is not None
    assert change.renamed == renamed
    assert change.witness is not None


def test_masks_that_differ_at_other_lengths_alone_are_not_the_same() -> None:
    (changed,) = diff(report(site(mask=Causal())), report(site(mask=Causal(K - Q)))).sites
    assert changed.mask is not None
    assert changed.mask.witness is not None
    assert changed.mask.witness.sizes.q_len + changed.mask.witness.sizes.past != changed.mask.witness.sizes.k_len


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            KeyPadding("m"),
            Adjacency("m"),
            "m is bool or int [B, K] in the old and bool or int [B or 1, Q, K] in the new",
        ),
        (Window(2**40, 0) & PAD, PAD, "a bound is too far"),
        (Window(2**15, 0) & Dense("d"), Dense("d"), "a bound is too far"),
    ],
)
def test_masks_without_a_witness_are_not_the_same(old: Mask, new: Mask, why: str) -> None:
    found = diff(report(site(mask=old)), report(site(mask=new)))
    change = found.sites[0].mask
    assert change is not None
    assert change.witness is None
    assert (change.why or "").startswith(why)


def test_sites_are_matched_by_the_names_of_places() -> None:
    old = report(*(site(name, mask=Window(n, 0)) for n, name in enumerate(names(0, 1, 2))))
    new = report(*(site(name, mask=Window(n, 0)) for n, name in ((2, *names(2)), (0, *names(0)))))
    found = diff(old, new)
    assert not any(pair.changed for pair in found.sites)
    assert [s.name for s in found.removed] == names(1)
    assert not found.added
    assert found.changed


def test_counted_names_are_matched_by_place() -> None:
    # The same two sites, whose nodes are counted up from another number.
    old = report(site("node_softmax_1", mask=Causal()), site("node_softmax_2", mask=Full()))
    new = report(site("node_softmax_2", mask=Causal()), site("node_softmax_3", mask=Full()))
    assert not diff(old, new).changed
    swapped = report(site("node_softmax_2", mask=Full()), site("node_softmax_1", mask=Causal()))
    assert not diff(old, swapped).changed


def test_sites_are_matched_by_place_and_shape_where_names_changed() -> None:
    old = report(*(site(name) for name in names(0, 1)), site("cross.0", cross=True))
    new = report(
        site("model.0.attn"), site("model.1.attn"), site("model.0.cross", cross=True), site("model.1.cross", cross=True)
    )
    found = diff(old, new)
    assert [(pair.old.name, pair.new.name) for pair in found.sites] == [
        ("layers.0.self_attn", "model.0.attn"),
        ("layers.1.self_attn", "model.1.attn"),
        ("cross.0", "model.0.cross"),
    ]
    assert [s.name for s in found.added] == ["model.1.cross"]
    resized = diff(report(site("a.b")), report(site("c.d", q_heads=4)))
    assert resized.sites[0].facts == {"q_heads": (8, 4)}
    assert not resized.added


@pytest.mark.parametrize(("before", "after", "changed"), [(0, 0, False), (1, 1, False), (1, 0, False), (0, 1, True)])
def test_attention_that_is_no_longer_understood_is_a_change(before: int, after: int, changed: bool) -> None:
    found = diff(report(SITE, unlifted=before), report(SITE, unlifted=after))
    assert found.changed is changed
    assert found.not_compared == (before, after)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(attention(5, FAR, FAR), "old.onnx")
    onnx.save(attention(FAR, FAR, FAR), "new.onnx")
    onnx.save(attention(FAR, FAR, padding="mask"), "less.onnx")


@pytest.mark.usefixtures("files")
def test_the_command_shows_the_difference() -> None:
    done = invoke(cli.app, ["diff", "old.onnx", "new.onnx"])
    assert (done.exit_code, done.stderr) == (1, "")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[:4] == [
        "layers.0.self_attn",
        "  mask  - window(5, 0) & padding(attention_mask)",
        "        + window(1000000, 0) & padding(attention_mask)",
        "  first difference at b=0, q=6, k=0, length 7, attention_mask all 1",
    ]
    assert "6 + ■ ■ ■ ■ ■ ■ · ·   6 · · ■ ■ ■ ■ ■ · ·" in lines
    assert lines[-1] == "2 attentions the same, 1 attention changed."


@pytest.mark.usefixtures("files")
def test_the_command_tells_renamed_tensors_and_sites_that_are_gone() -> None:
    done = invoke(cli.app, ["diff", "new.onnx", "less.onnx"])
    assert (done.exit_code, done.stderr) == (1, "")
    assert done.stdout.startswith("layers.0-1.self_attn\n")
    assert "  the same mask, but the tensor attention_mask is now mask\n" in done.stdout
    assert "removed layers.2.self_attn  window(1000000, 0) & padding(attention_mask)\n" in done.stdout
    assert done.stdout.endswith("2 attentions changed, 1 attention removed.\n")


@pytest.mark.usefixtures("files")
def test_the_command_prints_json_and_no_difference() -> None:
    done = invoke(cli.app, ["diff", "old.onnx", "old.onnx"])
    assert (done.exit_code, done.output) == (0, "3 attentions the same.\n")
    done = invoke(cli.app, ["diff", "old.onnx", "new.onnx", "--json"])
    assert (done.exit_code, done.stderr) == (1, "")
    printed = json.loads(done.stdout)
    assert printed == diff(inspect("old.onnx"), "new.onnx").to_json()
    assert (printed["changed"], printed["same"], printed["removed"], printed["added"]) == (True, 2, [], [])
    assert invoke(cli.app, ["diff", "old.onnx", "old.onnx", "--json"]).exit_code == 0
