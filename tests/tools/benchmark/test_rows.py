"""Row by row: each row alone on its real tokens, put back where they were."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.export.cases.layout import Layout
from maskport.tools.benchmark.rows import by_rows

IO = {
    "inputs": {
        "x": {"role": "tokens", "axes": ["batch", "seq", 3]},
        "attention_mask": {"role": "mask", "axes": ["batch", "seq"], "pad": 0},
    },
    "outputs": {"y": {"axes": ["batch", "seq", 3]}},
}


def test_each_row_sees_its_real_tokens_alone() -> None:
    seen = []

    def run(batch: dict[str, np.ndarray]) -> np.ndarray:
        seen.append(batch["x"].shape)
        assert batch["attention_mask"].all()
        return batch["x"] - batch["x"].mean(axis=1, keepdims=True)

    x = np.random.default_rng(0).standard_normal((3, 4, 3))
    mask = np.array([[1, 1, 1, 1], [0, 0, 1, 1], [1, 0, 1, 0]])
    output = by_rows(run, Layout.from_io(IO))({"x": x, "attention_mask": mask})

    assert seen == [(1, 4, 3), (1, 2, 3), (1, 2, 3)]
    means = (x * mask[..., None]).sum(axis=1, keepdims=True) / mask.sum(axis=1)[:, None, None]
    np.testing.assert_allclose(output, (x - means) * mask[..., None])


def test_a_model_without_a_padding_mask_has_no_rows_to_shorten() -> None:
    io = {"inputs": {"x": IO["inputs"]["x"]}, "outputs": IO["outputs"]}
    with pytest.raises(ValueError, match="no padding mask"):
        by_rows(lambda batch: batch["x"], Layout.from_io(io))
