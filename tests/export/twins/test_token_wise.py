"""Normalizations, activations and products against ONNX Runtime's kernels."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .one_node import Inputs, assert_close, by_onnxruntime, by_twin, normal

B, S, H = 3, 5, 16
RNG = np.random.default_rng(0)
X, SKIP, GAMMA, BETA, BIAS = (normal(RNG, *shape) for shape in ((B, S, H), (B, S, H), (H,), (H,), (H,)))
IDS = RNG.integers(0, 7, (B, S)).astype(np.int32)
EMBEDDINGS: dict[str, np.ndarray | None] = {
    "input_ids": IDS,
    "segment_ids": IDS % 2,
    "words": normal(RNG, 7, H),
    "positions": normal(RNG, 9, H),
    "segments": normal(RNG, 2, H),
    "gamma": GAMMA,
    "beta": BETA,
}
SUM = ["out", "", "", "sum"]

Case = tuple[str, dict[str, np.ndarray | None], Any, dict[str, Any]]
CASES: dict[str, Case] = {
    "skip": ("SkipLayerNormalization", {"x": X, "skip": SKIP, "gamma": GAMMA}, 1, {}),
    "skip, all": (
        "SkipLayerNormalization",
        {"x": X, "skip": SKIP, "gamma": GAMMA, "beta": BETA, "bias": BIAS},
        SUM,
        {"epsilon": 0.1},
    ),
    "skip of one row": ("SkipLayerNormalization", {"x": X, "skip": SKIP[:1], "gamma": GAMMA, "beta": BETA}, SUM, {}),
    "skip without a batch": ("SkipLayerNormalization", {"x": X, "skip": SKIP[0], "gamma": GAMMA}, SUM, {}),
    "skip of tokens": ("SkipLayerNormalization", {"x": X[0], "skip": SKIP[0], "gamma": GAMMA}, SUM, {}),
    "simplified skip": ("SkipSimplifiedLayerNormalization", {"x": X, "skip": SKIP, "gamma": GAMMA}, SUM, {}),
    "simplified skip, all": (
        "SkipSimplifiedLayerNormalization",
        {"x": X, "skip": SKIP, "gamma": GAMMA, "bias": BIAS},
        SUM,
        {"epsilon": 0.1},
    ),
    "simplified": ("SimplifiedLayerNormalization", {"x": X, "gamma": GAMMA}, 1, {"domain": "", "epsilon": 1e-3}),
    "simplified, two axes": (
        "SimplifiedLayerNormalization",
        {"x": X, "gamma": SKIP[0]},
        1,
        {"domain": "", "axis": 1},
    ),
    "embeddings": ("EmbedLayerNormalization", EMBEDDINGS, 2, {}),
    "embeddings, mask": ("EmbedLayerNormalization", {**EMBEDDINGS, "mask": IDS % 2}, 2, {"epsilon": 0.1}),
    "embeddings, positions, sum": (
        "EmbedLayerNormalization",
        {**EMBEDDINGS, "mask": None, "position_ids": IDS},
        ["out", "index", "sum"],
        {},
    ),
    "embeddings, no segments": (
        "EmbedLayerNormalization",
        {**EMBEDDINGS, "segment_ids": None, "segments": None, "mask": IDS % 2},
        2,
        {},
    ),
    "gelu": ("Gelu", {"x": 3 * X}, 1, {}),
    "gelu of ONNX": ("Gelu", {"x": 3 * X}, 1, {"domain": ""}),
    "gelu of ONNX by tanh": ("Gelu", {"x": 3 * X}, 1, {"domain": "", "approximate": "tanh"}),
    "bias gelu": ("BiasGelu", {"x": 3 * X, "bias": BIAS}, 1, {}),
    "fast gelu": ("FastGelu", {"x": 3 * X}, 1, {}),
    "fast gelu, bias": ("FastGelu", {"x": 3 * X, "bias": BIAS}, 1, {}),
    "quick gelu": ("QuickGelu", {"x": 3 * X}, 1, {}),
    "quick gelu of large numbers": ("QuickGelu", {"x": 1000 * X}, 1, {"alpha": 1.5}),
    "product": ("FusedMatMul", {"a": X, "b": SKIP}, 1, {"transB": 1, "alpha": 0.3}),
    "product, first transposed": ("FusedMatMul", {"a": X, "b": SKIP}, 1, {"transA": 1}),
    "product with a matrix": ("FusedMatMul", {"a": X, "b": SKIP[0]}, 1, {"transB": 1}),
    **{
        f"gemm, {activation}": (
            "FusedGemm",
            {"a": X[0], "b": SKIP[0], "c": BIAS[:S]},
            1,
            {"transB": 1, "alpha": 0.3, "beta": 2.0, "activation": activation}
            | ({"activation_alpha": 0.2} if activation == "LeakyRelu" else {}),
        )
        for activation in ("LeakyRelu", "Relu", "Sigmoid", "Tanh")
    },
    "gemm of the first transposed": ("FusedGemm", {"a": X[0], "b": SKIP[0]}, 1, {"transA": 1, "activation": "Tanh"}),
    "product of batches inside": (
        "FusedMatMul",
        {"a": normal(RNG, 2, B, 4, 5), "b": normal(RNG, 2, B, 4, 5)},
        1,
        {"transBatchA": 1, "transBatchB": 1, "transB": 1},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_is_what_the_cpu_computes(case: str) -> None:
    op, inputs, outputs, attributes = CASES[case]
    for actual, expected in zip(
        by_twin(op, inputs, outputs, **attributes), by_onnxruntime(op, inputs, outputs, **attributes), strict=True
    ):
        assert_close(actual, expected, 3e-6)


def cast(inputs: Inputs, dtype: Any) -> Inputs:
    """Return inputs whose floats are of another type."""
    return {name: x.astype(dtype) if x is not None and x.dtype.kind != "i" else x for name, x in inputs.items()}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_half_is_float32_rounded_once(case: str, dtype: Any) -> None:
    op, inputs, outputs, attributes = CASES[case]
    half = cast(inputs, dtype)
    with np.errstate(over="ignore"):
        for actual, expected in zip(
            by_twin(op, half, outputs, **attributes),
            by_twin(op, cast(half, np.float32), outputs, **attributes),
            strict=True,
        ):
            assert actual.dtype == (dtype if expected.dtype == np.float32 else expected.dtype)
            np.testing.assert_array_equal(actual, expected.astype(actual.dtype))


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_mean_and_the_inverse_deviation_are_float32(op: str) -> None:
    inputs = {"x": X.astype(np.float16), "skip": SKIP.astype(np.float16), "gamma": GAMMA.astype(np.float16)}
    _, mean, inverse, _ = by_twin(op, inputs, 4, epsilon=0.0)
    total = inputs["x"].astype(np.float32) + inputs["skip"]
    expected = total.mean(-1, keepdims=True) if op == "SkipLayerNormalization" else np.zeros((B, S, 1), np.float32)
    assert_close(mean, expected)
    assert_close(inverse, 1 / np.sqrt(np.square(total - expected).mean(-1, keepdims=True)))


def test_a_skip_that_would_broadcast_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected a skip of \(3, 5, 16\)"):
        by_twin("SkipLayerNormalization", {"x": X, "skip": SKIP[:, :1], "gamma": GAMMA})


def test_an_activation_without_a_twin_is_refused() -> None:
    with pytest.raises(ValueError, match="'Softplus' has no twin"):
        by_twin("FusedGemm", {"a": X[0], "b": SKIP[0]}, transB=1, activation="Softplus")
