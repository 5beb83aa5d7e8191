"""Operators of ONNX: onnx.reference is what ONNX Runtime's kernels are, and float16 and bfloat16 round once.

B batch, S queries, T keys, N heads of queries, G of keys, D head size.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .one_node import Inputs, assert_close, by_onnxruntime, by_twin, normal

B, S, T, N, G, D = 3, 5, 7, 4, 2, 8
ONNX = {"domain": "", "opset": 24}


def attention(
    rng: np.random.Generator,
    *,
    keys: int = T,
    past: int = 0,
    by_head: bool = False,
    mask: np.ndarray | None = None,
    lengths: list[int] | None = None,
) -> dict[str, np.ndarray | None]:
    """Draw the inputs of Attention."""
    parts = [normal(rng, B, n, heads * D) for n, heads in ((S, N), (keys, G), (keys, G))]
    if by_head:
        parts = [part.reshape(B, part.shape[1], -1, D).transpose(0, 2, 1, 3).copy() for part in parts]
    return {
        **dict(zip(("query", "key", "value"), parts, strict=True)),
        "mask": mask,
        "past_key": normal(rng, B, G, past, D) if past else None,
        "past_value": normal(rng, B, G, past, D) if past else None,
        "lengths": None if lengths is None else np.array(lengths),
    }


RNG = np.random.default_rng(0)
BOOL = np.maximum(RNG.random((B, N, S, T)) < 0.6, np.arange(T) == 0)
HEADS = {"q_num_heads": N, "kv_num_heads": G}
ATTENTION: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "by head": ({"by_head": True}, {}),
    "scale": ({}, {"scale": 0.3}),
    "softcap": ({}, {"softcap": 1.5}),
    "bool mask": ({"mask": BOOL}, {}),
    "bool mask of all": ({"mask": BOOL[0, 0]}, {}),
    "bool mask of heads": ({"mask": BOOL[0]}, {}),
    "float mask": ({"mask": normal(RNG, B, 1, S, T)}, {}),
    "float mask, softcap": ({"mask": normal(RNG, S, T)}, {"softcap": 1.5}),
    "bool mask, softcap": ({"mask": BOOL}, {"softcap": 1.5}),
    "causal": ({"keys": S}, {"is_causal": 1}),
    "causal cross": ({}, {"is_causal": 1}),
    "causal, bool mask": ({"mask": BOOL}, {"is_causal": 1}),
    "past": ({"past": 4}, {}),
    "past, causal": ({"past": 4, "keys": S}, {"is_causal": 1}),
    "lengths": ({"lengths": [7, 2, 5]}, {}),
    "lengths, mask": ({"lengths": [7, 2, 5], "mask": BOOL}, {}),
    "causal, lengths: aligned at the end": ({"lengths": [7, 5, 6]}, {"is_causal": 1}),
    "causal, lengths less than queries": ({"lengths": [7, 2, 4]}, {"is_causal": 1}),
    "a row without keys": ({"mask": BOOL & (np.arange(S) != 2)[:, None]}, {}),
    "a row of minus infinity": (
        {"mask": np.where(np.arange(S) != 2, 0, -np.inf)[:, None].repeat(T, 1).astype("f")},
        {},
    ),
    "no length": ({"lengths": [7, 0, 5]}, {}),
}
POSITIONS = RNG.integers(0, 16, (B, S))
ANGLES = RNG.uniform(0, 6, (16, D // 2)).astype(np.float32)
X = normal(RNG, B, S, N * D)
ROTARY = {"x": X, "cos": np.cos(ANGLES), "sin": np.sin(ANGLES), "positions": POSITIONS}
OTHERS: dict[str, tuple[str, dict[str, np.ndarray | None], dict[str, Any]]] = {
    "rotary": ("RotaryEmbedding", ROTARY, {"num_heads": N}),
    "rotary, interleaved": ("RotaryEmbedding", ROTARY, {"num_heads": N, "interleaved": 1}),
    "rotary by head": ("RotaryEmbedding", {**ROTARY, "x": normal(RNG, B, N, S, D)}, {}),
    "rotary of a part": (
        "RotaryEmbedding",
        {**ROTARY, "cos": ROTARY["cos"][:, :2], "sin": ROTARY["sin"][:, :2]},
        {"num_heads": N, "rotary_embedding_dim": 4},
    ),
    "rotary without positions": (
        "RotaryEmbedding",
        {"x": X, "cos": np.cos(ANGLES[POSITIONS]), "sin": np.sin(ANGLES[POSITIONS])},
        {"num_heads": N},
    ),
    "rms": ("RMSNormalization", {"x": X, "scale": X[0, 0]}, {"epsilon": 1e-3}),
    "layer": ("LayerNormalization", {"x": X, "scale": X[0, 0], "bias": X[0, 1]}, {}),
    "softmax": ("Softmax", {"x": X}, {"axis": 1}),
    "log softmax": ("LogSoftmax", {"x": X}, {}),
    "product": ("MatMul", {"x": X, "y": X[0].T.copy()}, {}),
    "gemm": ("Gemm", {"x": X[0], "y": X[1], "z": X[2, 0, :S]}, {"transB": 1, "alpha": 0.3, "beta": 2.0}),
    "elements of a long axis": (
        "GatherElements",
        {"x": normal(RNG, 2, 3, 100), "indices": RNG.integers(-100, 100, (1, 3, 7))},
        {"axis": -1},
    ),
    "elements of the first axis": ("GatherElements", {"x": X, "indices": RNG.integers(0, B, (9, 2, 5))}, {}),
    "einsum": ("Einsum", {"x": X, "y": X}, {"equation": "bsd,btd->bst"}),
    "mean": ("ReduceMean", {"x": X, "axes": np.array([-1])}, {"keepdims": 0}),
    "sum": ("ReduceSum", {"x": X, "axes": np.array([1])}, {}),
    "squares": ("ReduceSumSquare", {"x": X, "axes": np.array([1])}, {}),
    "norm": ("ReduceL2", {"x": X, "axes": np.array([1])}, {}),
    "log of sum": ("ReduceLogSumExp", {"x": X, "axes": np.array([1])}, {}),
}
CASES = {
    **{
        f"attention, {name}": (
            "Attention",
            attention(RNG, **given),
            attributes if given.get("by_head") else HEADS | attributes,
        )
        for name, (given, attributes) in ATTENTION.items()
    },
    **OTHERS,
}


def outputs_of(inputs: Inputs) -> int:
    """Return how many outputs a node has: those of a cache too."""
    return 3 if inputs.get("past_key") is not None else 1


@pytest.mark.parametrize("case", CASES)
def test_the_reference_is_what_the_cpu_computes(case: str) -> None:
    op, inputs, attributes = CASES[case]
    for actual, expected in zip(
        by_twin(op, inputs, outputs_of(inputs), **ONNX, **attributes),
        by_onnxruntime(op, inputs, outputs_of(inputs), **ONNX, **attributes),
        strict=True,
    ):
        assert_close(actual, expected, 1e-5)


def cast(inputs: Inputs, dtype: Any) -> dict[str, np.ndarray | None]:
    """Return inputs whose floats are of another type."""
    return {name: x.astype(dtype) if x is not None and x.dtype.kind in "fV" else x for name, x in inputs.items()}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_half_is_float32_rounded_once(case: str, dtype: Any) -> None:
    op, inputs, attributes = CASES[case]
    half = cast(inputs, dtype)
    for actual, expected in zip(
        by_twin(op, half, outputs_of(inputs), **ONNX, **attributes),
        by_twin(op, cast(half, np.float32), outputs_of(inputs), **ONNX, **attributes),
        strict=True,
    ):
        assert actual.dtype == dtype
        np.testing.assert_array_equal(actual, expected.astype(dtype))


def test_a_long_sum_of_bfloat16_does_not_stop_growing() -> None:
    """In bfloat16, 256 + 1 is 256."""
    ones = np.ones((1, 1000), ml_dtypes.bfloat16)
    (total,) = by_twin("ReduceSum", {"x": ones, "axes": np.array([1])}, **ONNX)
    assert total.astype(np.float32) == ml_dtypes.bfloat16(1000)


def test_the_statistics_of_a_layer_are_float32() -> None:
    half = {"x": X.astype(np.float16), "scale": X[0, 0].astype(np.float16)}
    output, mean, inverse = by_twin("LayerNormalization", half, 3, **ONNX)
    assert [array.dtype for array in (output, mean, inverse)] == [np.float16, np.float32, np.float32]
