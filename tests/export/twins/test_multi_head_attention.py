"""MultiHeadAttention against ONNX Runtime's kernel, and against its documentation where the CPU has no kernel.

B batch, S queries, L new keys, P cached keys, N heads, D head size.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .one_node import Inputs, assert_close, by_onnxruntime, by_twin, normal

B, S, N, D = 3, 5, 2, 8
HIDDEN = N * D
OP = "MultiHeadAttention"


def inputs_of(
    rng: np.random.Generator,
    *,
    queries: int = S,
    new: int | None = None,
    past: int = 0,
    size_v: int = D,
    bias: bool = False,
    layout: str = "BSH",
    mask: str | None = None,
    added: tuple[int, int] | None = None,
) -> dict[str, np.ndarray | None]:
    """Draw the operator's inputs."""
    new = queries if new is None else new
    total = past + new
    key, value = normal(rng, B, new, HIDDEN), normal(rng, B, new, N * size_v)
    if layout == "BNSD":
        key, value = (part.reshape(B, new, N, -1).transpose(0, 2, 1, 3).copy() for part in (key, value))
    lengths = rng.integers(1, total + 1, B).astype(np.int32)
    masks = {
        None: None,
        "lengths": lengths,
        "cumulative": np.concatenate([lengths, np.arange(B + 1) * queries, np.arange(B + 1) * total]).astype(np.int32),
        "keys": (rng.random((B, total)) < 0.6).astype(np.int32),
        "pairs": (rng.random((B, queries, total)) < 0.6).astype(np.int32),
    }
    chosen = masks[mask]
    if mask in ("keys", "pairs"):
        assert chosen is not None
        chosen[..., 0] = 1
    return {
        "query": normal(rng, B, queries, HIDDEN),
        "key": key,
        "value": value,
        "bias": normal(rng, 2 * HIDDEN + N * size_v) if bias else None,
        "mask": chosen,
        "added": None if added is None else normal(rng, *added, queries, total),
        "past_key": normal(rng, B, N, past, D) if past else None,
        "past_value": normal(rng, B, N, past, size_v) if past else None,
    }


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "bias": ({"bias": True}, {}),
    "scale": ({}, {"scale": 0.3}),
    "scale of 0 is the default": ({}, {"scale": 0.0}),
    "other value size": ({"size_v": 4, "bias": True}, {}),
    "cross": ({"new": 7}, {}),
    "cross, bias, keys": ({"new": 7, "bias": True, "mask": "keys"}, {}),
    "keys by head": ({"new": 7, "layout": "BNSD"}, {}),
    "keys by head, bias": ({"new": 7, "layout": "BNSD", "bias": True}, {}),
    "causal": ({}, {"unidirectional": 1}),
    "causal, lengths": ({"mask": "lengths"}, {"unidirectional": 1}),
    "causal, keys": ({"mask": "keys"}, {"unidirectional": 1}),
    "causal, one query over more keys": ({"queries": 1, "new": 6}, {"unidirectional": 1}),
    "past": ({"past": 4}, {}),
    "past, causal": ({"past": 4}, {"unidirectional": 1}),
    "past, keys": ({"past": 4, "mask": "keys"}, {}),
    "past, causal, added": ({"past": 4, "added": (1, N)}, {"unidirectional": 1}),
    "decode": ({"queries": 1, "past": 6, "mask": "keys", "bias": True}, {}),
    "smaller fill": ({"mask": "keys"}, {"mask_filter_value": -2.0}),
    "lengths, added": ({"mask": "lengths", "added": (B, 1)}, {}),
    "pairs, added": ({"mask": "pairs", "added": (B, N)}, {}),
    **{f"mask of {mask}": ({"mask": mask}, {}) for mask in ("lengths", "cumulative", "keys", "pairs")},
    **{f"added {shape}": ({"added": shape}, {}) for shape in itertools.product((1, B), (1, N))},
}


@pytest.mark.parametrize("form", FORMS)
def test_is_what_the_cpu_computes(form: str) -> None:
    rng = np.random.default_rng(len(form))
    given, attributes = FORMS[form]
    inputs = inputs_of(rng, **given)
    outputs = 3 if inputs["past_key"] is not None else 1
    for actual, expected in zip(
        by_twin(OP, inputs, outputs, num_heads=N, **attributes),
        by_onnxruntime(OP, inputs, outputs, num_heads=N, **attributes),
        strict=True,
    ):
        assert_close(actual, expected)


def test_a_row_of_padding_is_the_softmax_of_its_scores_as_on_the_cpu() -> None:
    inputs = inputs_of(np.random.default_rng(0), mask="keys")
    assert inputs["mask"] is not None
    inputs["mask"][1] = 0
    (actual,), (expected,) = by_twin(OP, inputs, num_heads=N), by_onnxruntime(OP, inputs, num_heads=N)
    # Next to -10000 a score keeps three digits.
    assert_close(actual, expected, 2e-3)


def test_a_row_of_minus_infinity_is_nan_as_on_the_cpu() -> None:
    inputs = inputs_of(np.random.default_rng(0), added=(1, 1))
    assert inputs["added"] is not None
    inputs["added"][..., 2, :] = -np.inf
    (actual,), (expected,) = by_twin(OP, inputs, num_heads=N), by_onnxruntime(OP, inputs, num_heads=N)
    assert np.isnan(actual[:, 2]).all()
    assert np.isnan(expected[:, 2]).all()
    assert_close(np.delete(actual, 2, 1), np.delete(expected, 2, 1))


@pytest.mark.parametrize("bias", [False, True])
def test_packed_is_what_its_parts_are(bias: bool) -> None:
    inputs = inputs_of(np.random.default_rng(1), bias=bias, mask="lengths")
    parts = [np.asarray(inputs[name]).reshape(B, S, N, D) for name in ("query", "key", "value")]
    (expected,) = by_twin(OP, inputs, num_heads=N)
    for query, key in [(np.stack(parts, 3), None), (inputs["query"], np.stack(parts[1:], 3))]:
        packed: Inputs = {**inputs, "query": query, "key": key, "value": None}
        assert_close(by_twin(OP, packed, num_heads=N)[0], expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_is_float32_rounded_once(dtype: Any) -> None:
    inputs = inputs_of(np.random.default_rng(2), bias=True, mask="keys", added=(1, N), past=3)
    half = {
        name: array if array is None or array.dtype == np.int32 else array.astype(dtype)
        for name, array in inputs.items()
    }
    wide = {
        name: array if array is None or array.dtype == np.int32 else array.astype(np.float32)
        for name, array in half.items()
    }
    for actual, expected in zip(by_twin(OP, half, 3, num_heads=N), by_twin(OP, wide, 3, num_heads=N), strict=True):
        assert actual.dtype == dtype
        np.testing.assert_array_equal(actual, expected.astype(dtype))


def changed(**changes: np.ndarray | None) -> dict[str, np.ndarray | None]:
    """Return plain inputs with some replaced."""
    return {**inputs_of(np.random.default_rng(0)), **changes}


REFUSED: dict[str, tuple[dict[str, np.ndarray | None], dict[str, Any], str]] = {
    "causal over keys of another length": (
        inputs_of(np.random.default_rng(0), new=7),
        {"unidirectional": 1},
        "5 queries over 7 keys is aligned differently",
    ),
    "a bias that would broadcast": (changed(added=np.zeros((1, 1, 1, S), np.float32)), {}, r"\[3 or 1, 2 or 1, 5, 5\]"),
    "cumulative lengths of packed rows": (
        changed(mask=np.array([1, 2, 3, 0, 1, 3, 6, 0, 1, 3, 6], np.int32)),
        {},
        "padded to one length",
    ),
    "ends and starts": (changed(mask=np.zeros(2 * B, np.int32)), {}, r"got \(6,\)"),
    "a mask of another shape": (changed(mask=np.ones((B, S + 1), np.int32)), {}, r"got \(3, 6\)"),
    "no value": (changed(value=None), {}, "expected value, or packed ones"),
    "half a cache": (changed(past_key=np.zeros((B, N, 2, D), np.float32)), {}, "both parts of the cache"),
    "a shared cache": (changed(past_length=np.ones(1, np.int32)), {}, "no twin"),
    "a cache that isn't returned": (inputs_of(np.random.default_rng(0), past=2), {}, "both present outputs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_what_has_no_single_meaning(case: str) -> None:
    inputs, attributes, why = REFUSED[case]
    with pytest.raises(ValueError, match=f"com.microsoft.MultiHeadAttention 'node': .*{why}"):
        by_twin(OP, inputs, num_heads=N, **attributes)


def test_nothing_is_warned_of_where_kernels_agree() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_twin(OP, inputs_of(np.random.default_rng(0), mask="keys"), num_heads=N)
