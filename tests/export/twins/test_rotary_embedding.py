"""RotaryEmbedding against ONNX Runtime's kernel."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .one_node import assert_close, by_onnxruntime, by_twin, normal

B, S, N, D, LONGEST = 3, 5, 2, 16, 32
OP = "RotaryEmbedding"


def inputs_of(
    rng: np.random.Generator, *, by_head: bool = False, first: bool = False, width: int = D, dtype: Any = np.float32
) -> dict[str, np.ndarray | None]:
    """Draw the operator's inputs."""
    angles = rng.uniform(0, 6, (LONGEST, width // 2))
    return {
        "x": normal(rng, B, N, S, D, dtype=dtype) if by_head else normal(rng, B, S, N * D, dtype=dtype),
        "position_ids": np.array([4]) if first else rng.integers(0, LONGEST, (B, S)),
        "cos": np.cos(angles).astype(dtype),
        "sin": np.sin(angles).astype(dtype),
    }


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "by head": ({"by_head": True}, {}),
    "from a position": ({"first": True}, {}),
    "by head, from a position": ({"first": True, "by_head": True}, {}),
    "interleaved": ({}, {"interleaved": 1}),
    "a part": ({"width": 8}, {"rotary_embedding_dim": 8, "num_heads": N}),
    "a part, interleaved": ({"width": 8}, {"rotary_embedding_dim": 8, "num_heads": N, "interleaved": 1}),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("form", FORMS)
def test_is_what_the_cpu_computes(form: str, dtype: Any) -> None:
    given, attributes = FORMS[form]
    inputs = inputs_of(np.random.default_rng(len(form)), dtype=dtype, **given)
    (actual,), (expected,) = (run(OP, inputs, **attributes) for run in (by_twin, by_onnxruntime))
    # The kernel for float16 rounds each product.
    assert_close(actual, expected, 1e-6 if dtype == np.float32 else 4e-3)


def test_half_is_float32_rounded_once() -> None:
    half = inputs_of(np.random.default_rng(3), dtype=ml_dtypes.bfloat16)
    wide = {name: x if x is None or x.dtype == np.int64 else x.astype(np.float32) for name, x in half.items()}
    (actual,), (expected,) = by_twin(OP, half), by_twin(OP, wide)
    np.testing.assert_array_equal(actual, expected.astype(ml_dtypes.bfloat16))
    assert actual.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("changes", "attributes", "why"),
    [
        ({"position_ids": np.full((B, S), LONGEST)}, {}, "positions from 0 to 31"),
        ({"position_ids": np.zeros((1, S), np.int64)}, {}, r"\[1\] or \[3, 5\]"),
        ({}, {"rotary_embedding_dim": 8, "num_heads": N}, "caches of 4 columns, got 8"),
        ({}, {"rotary_embedding_dim": D}, "needs num_heads"),
        ({}, {"scale": 2.0}, "no twin"),
    ],
)
def test_refuses_what_has_no_single_meaning(
    changes: dict[str, np.ndarray], attributes: dict[str, Any], why: str
) -> None:
    inputs = {**inputs_of(np.random.default_rng(0)), **changes}
    with pytest.raises(ValueError, match=f"com.microsoft.RotaryEmbedding 'node': .*{why}"):
        by_twin(OP, inputs, **attributes)
