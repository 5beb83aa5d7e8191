"""A mask that is written as ONNX is read back as the same mask."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from maskport.models import Causal, Chunked, K, KeyPadding, Mask, Prefix, Q, Row, Segments, Window, past

from ...models.mask_strategies import masks
from .lifting import lift_graph


@settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))
@given(masks(max_leaves=5))
def test_random_expressions(mask: Mask) -> None:
    lifted, assumes = lift_graph(mask.to_onnx())
    assert lifted == mask
    assert not assumes


@settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))
@given(masks(max_leaves=12))
def test_larger_random_expressions(mask: Mask) -> None:
    assert lift_graph(mask.to_onnx())[0] == mask


@pytest.mark.parametrize(
    "mask",
    [
        Causal(Row("n") - Q),
        Causal(K - Q) & KeyPadding("m", -100),
        Window(3, 1, past - 2) | Prefix("n") + 4,
        Chunked(8192) & ~Chunked(7) & Causal(),
        Segments("k_document", "q_document") & ~Window(0, 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("opset_version", [13, 18, 23])
def test_opsets(mask: Mask, opset_version: int) -> None:
    assert lift_graph(mask.to_onnx(opset_version=opset_version))[0] == mask


def test_bool_tensors() -> None:
    mask = KeyPadding("m") & ~KeyPadding("o")
    assert lift_graph(mask.to_onnx(dtypes={"m": bool, "o": bool}))[0] == mask
