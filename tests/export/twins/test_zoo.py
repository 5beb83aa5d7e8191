"""Whole models of transformers, as ONNX Runtime itself rewrites them: what the twins compute is what it computes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from maskport.export.twins import evaluate

from ...zoo.configs import EXPORTED

if TYPE_CHECKING:
    from ...zoo.models import Zoo

BATCH, LENGTH = 3, 20
# Padding on the left, on the right, and a hole.
MASK = np.ones((BATCH, LENGTH), np.int64)
MASK[0, :7] = MASK[1, 12:] = MASK[2, 5] = 0
# Not the vocabulary, but of what kind a token is.
KINDS = "token_type_ids"


@pytest.mark.parametrize("opset", [None, 23], ids=["default", "23"])
@pytest.mark.parametrize("name", EXPORTED)
def test_a_model_with_fused_operators(zoo: Zoo, name: str, opset: int | None, tmp_path: Path) -> None:
    chosen = zoo(name, opset)
    # At opset 23 the plain export of some can't run more than one row.
    source = chosen.path if opset else chosen.plain
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    session = ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    fused = onnx.load(tmp_path / "fused.onnx")
    rng = np.random.default_rng(0)
    feeds = {}
    for value in session.get_inputs():
        ids = rng.integers(0, 2, MASK.shape) if value.name == KINDS else rng.integers(3, 90, MASK.shape)
        feeds[value.name] = MASK if value.name.endswith("mask") else ids
    expected = session.run(None, feeds)
    outputs = evaluate(fused, feeds)
    for value, array in zip(session.get_outputs(), expected, strict=True):
        actual = outputs[value.name]
        assert actual.shape == array.shape
        # The kernel of Attention gives zero, not the mean, for a row whose keys are all masked by the lowest number.
        rows = MASK > 0 if array.shape[:2] == MASK.shape else np.ones(array.shape[:1], bool)
        scale = np.abs(array[rows]).max()
        assert math.isfinite(scale)
        np.testing.assert_allclose(actual[rows], array[rows], rtol=0, atol=1e-5 * scale)
