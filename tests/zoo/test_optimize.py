"""The zoo, optimized: proven, every attention, the same masks, and no dense mask on CUDA where none is needed."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import onnxruntime as ort
import pytest
from maskport.export import ProofFailed, inspect, optimize
from maskport.models import Mask

from .configs import EXPORTED, OPSETS
from .models import Zoo
from .optimized import BEGIN, COLUMNS, END, FORMS, NOT_HALF, became, rows

# Masks of these alone need no tensor of queries and keys on CUDA.
COMPACT = ("full", "causal", "padding(", "query_padding(", "segments(")
# What has one all the same, by the reason that is in the table.
DENSE = {
    "mpnet": "relative positions are added to scores",
    "deberta": "relative positions are added to scores",
    "t5": "relative positions are added to scores",
    "bloom": "ALiBi is added to scores",
    "gpt_oss": "in float32 no fused kernel takes a sink",
}
BOTH = pytest.mark.parametrize("opset", OPSETS, ids=["default", "23"])
ALL = pytest.mark.parametrize("name", EXPORTED)


def is_compact(mask: Mask) -> bool:
    """Return whether a mask is made of causal, causal windows, padding and segments."""
    for conjunct in mask.conjuncts:
        left, right = conjunct.window
        window = not conjunct.tensors and right == 0 and left >= 0
        if not window and not all(str(leaf).startswith(COMPACT) for leaf in conjunct.leaves):
            return False
    return True


@BOTH
@ALL
def test_every_attention_is_rewritten_and_proven(zoo: Zoo, name: str, opset: int | None) -> None:
    source = inspect(zoo(name, opset).path, check=False)
    for form in FORMS:
        found = became(zoo(name, opset), form)
        assert [site["name"] for site in found.sites] == [site.name for site in source.sites]
        assert found.checked in ("cpu", "twin")
        assert not found.changed_masks


@BOTH
@ALL
def test_on_cuda_no_mask_is_dense_where_none_is_needed(zoo: Zoo, name: str, opset: int | None) -> None:
    sites = became(zoo(name, opset), "cuda").sites
    dense = [site for site in sites if site["dense"] or site["kernel"] == "decomposed"]
    wrong = [site for site in dense if is_compact(Mask.parse(site["mask"]))]
    assert bool(wrong) == (name in DENSE), wrong


@pytest.mark.parametrize("name", ["bert", "llama", "bart", "modernbert"])
def test_a_second_time_changes_nothing(zoo: Zoo, name: str, tmp_path: Path) -> None:
    model = zoo(name)
    for form, options in FORMS.items():
        became(model, form)
        written = model.folder / f"{form.replace(' ', '-')}.onnx"
        again = tmp_path / "again.onnx"
        optimize(model.path, again, **options)
        assert again.read_bytes() == written.read_bytes()
        twice = optimize(written, again, **{**options, "dtype": None})
        assert not twice.changed
        assert again.read_bytes() == written.read_bytes()


def test_what_is_not_half_is_refused_in_half(zoo: Zoo) -> None:
    for name in NOT_HALF:
        with pytest.raises(ProofFailed, match="differs from the source"):
            optimize(zoo(name).path, **FORMS["cuda"])


@ALL
def test_the_file_loads_and_says_what_it_is(zoo: Zoo, name: str) -> None:
    became(zoo(name), "cpu any")
    path = zoo(name).folder / "cpu-any.onnx"
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [[value.name for value in values] for values in (session.get_inputs(), session.get_outputs())]
    source = ir.load(zoo(name).path).graph
    assert names == [[value.name for value in values] for values in (source.inputs, source.outputs)]
    assert {"maskport.certificate", "maskport.sites", "maskport.io"} <= set(ir.load(path).metadata_props)


def test_the_table_shows_what_ran(zoo: Zoo, root: Path) -> None:
    page = (root / "docs" / "optimized.md").read_text(encoding="utf-8")
    lines = page[page.index(BEGIN) : page.index(END)].splitlines()
    shown = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert shown[0] == COLUMNS
    made = [[cell.replace("|", "").strip() for cell in cells] for name in EXPORTED for cells in rows(name, zoo)]
    assert [[cell.strip() for cell in cells] for cells in shown[2:]] == made
