"""The zoo is right: every architecture at both opsets, on every size and padding."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort
import pytest
import transformers
from maskport.export import export
from maskport.export.hf import load

from .configs import EXPORTED, OPSETS, ZOO
from .measure import TOLERANCE, compare, measure
from .models import Zoo
from .table import COLUMNS, row


@pytest.mark.parametrize("opset", OPSETS, ids=["default", "23"])
@pytest.mark.parametrize("name", EXPORTED)
def test_valid_rows_agree_with_eager(zoo: Zoo, name: str, opset: int | None) -> None:
    measured = measure(zoo(name, opset))
    assert measured.failures == {}
    # Four batches; at length 1 every padding is the same.
    assert measured.cases >= 4 * (1 + 3 * 3)


def test_the_table_shows_what_ran(zoo: Zoo, root: Path) -> None:
    """All but the error, whose last digits are the machine's."""
    lines = (root / "docs" / "zoo.md").read_text(encoding="utf-8").splitlines()
    shown = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    made = [row(name, measure(zoo(name, opset))) for name in EXPORTED for opset in OPSETS]
    error = COLUMNS.index("worst error")
    assert [cells[:error] + cells[error + 1 :] for cells in shown[2:]] == [
        cells[:error] + cells[error + 1 :] for cells in made
    ]
    assert shown[0] == COLUMNS


def test_both_files_are_made_once_whoever_asks(zoo: Zoo) -> None:
    model = zoo("gpt2")
    made = [path.stat().st_mtime_ns for path in (model.path, model.plain)]
    again = Zoo(zoo.folder)("gpt2")
    assert [path.stat().st_mtime_ns for path in (again.path, again.plain)] == made
    names = [value.name for value in ort.InferenceSession(model.plain).get_inputs()]
    assert names == ["input_ids", "attention_mask"]


def test_a_lost_window_is_seen(zoo: Zoo, tmp_path: Path) -> None:
    """The comparison can fail, and where it must: at lengths that pass the window."""
    folder, file = tmp_path / "config", tmp_path / "m.onnx"
    chosen = ZOO["mistral"]
    getattr(transformers, chosen.config)(**{**chosen.arguments, "sliding_window": None}).save_pretrained(folder)
    module, inputs, shapes = load(folder)
    export(module, inputs, file, dynamic_shapes=shapes, check=False)
    errors = compare(file, zoo("mistral").loaded)
    wrong = {case for case, error in errors.items() if error > TOLERANCE}
    assert {case.split(",")[1] for case in wrong} == {"seq=20", "seq=33"}
    assert max(errors.values()) > 0.01
