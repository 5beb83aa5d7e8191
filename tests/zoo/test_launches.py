"""The launches that optimizing saves on CUDA: of some models here, of all in the table of docs/dryrun.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from maskport.tools.dryrun.call import Called

from .launches import BEGIN, END, FULL, MODELS, measure

# At most, of a layer that is optimized: packed, and padded.
MOST = {"bert": (11, 11), "llama": (15, 15)}


@pytest.mark.parametrize("name", MOST)
def test_a_layer_has_few_launches(name: str, tmp_path: Path, root: Path, null_device: Callable[..., Called]) -> None:
    found = measure(name, tmp_path)
    packed, padded = MOST[name]
    assert found.a_layer("after") <= packed
    assert found.a_layer("padded") <= padded
    assert found.a_layer("after") <= found.a_layer("before") / 2
    assert {site.kernel for site in found.deep.after.attention} <= {"flash", "cudnn"}
    # Nothing is copied between host and device but the number of tokens.
    assert found.deep.after.copies("h2d", inside=True) == found.shallow.after.copies("h2d", inside=True) == 0
    assert found.deep.after.copies("d2h", inside=True) == found.shallow.after.copies("d2h", inside=True) == 1
    assert found.shallow.padded.cuda_graph.capturable
    row = next(line for line in _table(root) if line.startswith(f"| {name} |"))
    assert row == "| " + " | ".join([name, *found.cells()]) + " |"


def test_the_table_has_all_models(root: Path) -> None:
    assert [re.split(r" *\| *", line)[1].removesuffix(FULL) for line in _table(root)[2:]] == MODELS


def _table(root: Path) -> list[str]:
    text = (root / "docs/dryrun.md").read_text(encoding="utf-8")
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip().splitlines()
