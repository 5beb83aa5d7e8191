"""GroupQueryAttention against ONNX Runtime's kernel, which is given rows without padding, padded rows and caches.

B batch, S queries, P room of the cache, N heads of queries, G of keys, D head size.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from maskport.export.twins import KernelsDisagree
from maskport.models import Causal, Window

from .one_node import assert_close, by_onnxruntime, by_twin, normal

B, S, N, G, D, LONGEST = 3, 7, 4, 2, 16, 32
OP = "GroupQueryAttention"


def inputs_of(
    rng: np.random.Generator,
    *,
    batch: int = B,
    queries: int = S,
    past: int = 0,
    room: int = 0,
    ends: list[int] | None = None,
    groups: int = G,
    packed: bool = False,
    rotary: bool = False,
    positions: np.ndarray | None = None,
    added: tuple[int, int] | None = None,
    sink: bool = False,
    dtype: Any = np.float32,
) -> dict[str, np.ndarray | None]:
    """Draw the operator's inputs; a cache holds `past` keys, and may have more room."""
    room = room or past
    total = past + queries
    query, key, value = (normal(rng, batch, queries, heads * D, dtype=dtype) for heads in (N, groups, groups))
    angles = rng.uniform(0, 6, (LONGEST, D // 2))
    return {
        "query": np.concatenate([query, key, value], -1) if packed else query,
        "key": None if packed else key,
        "value": None if packed else value,
        "past_key": normal(rng, batch, groups, room, D, dtype=dtype) if room else None,
        "past_value": normal(rng, batch, groups, room, D, dtype=dtype) if room else None,
        "seqlens_k": np.array(ends or [total] * batch, np.int32) - 1,
        "total": np.array(total, np.int32),
        "cos": np.cos(angles).astype(dtype) if rotary else None,
        "sin": np.sin(angles).astype(dtype) if rotary else None,
        "position_ids": positions,
        "added": None if added is None else normal(rng, *added, queries, total, dtype=dtype),
        "sink": normal(rng, N, dtype=dtype) if sink else None,
    }


PADDED = [S, 3, 5]
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "causal": ({}, {}),
    "heads of their own": ({"groups": N}, {}),
    "one head of keys": ({"groups": 1}, {}),
    "packed": ({"packed": True}, {}),
    "padded": ({"ends": PADDED}, {}),
    "scale": ({}, {"scale": 0.3}),
    "softcap": ({}, {"softcap": 1.5}),
    "softcap, added": ({"added": (B, N)}, {"softcap": 1.5}),
    "added": ({"added": (1, N), "ends": PADDED}, {}),
    "sink": ({"sink": True, "ends": PADDED}, {}),
    "smooth": ({}, {"smooth_softmax": 1}),
    "sink, softcap, window": ({"sink": True}, {"softcap": 1.5, "local_window_size": 3}),
    **{f"window {size}": ({"ends": PADDED}, {"local_window_size": size}) for size in (1, 2, 3, S, S + 1, 100)},
    "not causal": ({}, {"causal": 0}),
    "not causal, softcap": ({"added": (B, 1)}, {"causal": 0, "softcap": 2.0}),
    "rotary": ({"rotary": True, "ends": PADDED}, {"do_rotary": 1}),
    "rotary, interleaved, packed": ({"rotary": True, "packed": True}, {"do_rotary": 1, "rotary_interleaved": 1}),
    "decode": ({"queries": 1, "past": 6}, {}),
    "decode, padded": ({"queries": 1, "past": 6, "ends": [7, 2, 4]}, {}),
    "decode, window": ({"queries": 1, "past": 6, "ends": [7, 2, 4]}, {"local_window_size": 3}),
    "decode, rotary": ({"queries": 1, "past": 6, "ends": [7, 2, 4], "rotary": True}, {"do_rotary": 1}),
    "decode, added": ({"queries": 1, "past": 6, "added": (B, N)}, {}),
    "several new": ({"batch": 1, "queries": 3, "past": 6}, {}),
    "several new, window": ({"batch": 1, "queries": 3, "past": 6}, {"local_window_size": 2}),
    "several new, rotary": ({"batch": 1, "queries": 3, "past": 6, "rotary": True}, {"do_rotary": 1}),
    "several new, not causal": ({"batch": 1, "queries": 3, "past": 6}, {"causal": 0}),
    "decode, room for more": ({"queries": 1, "past": 6, "room": 12, "ends": [7, 2, 4]}, {}),
    "prompt with an empty cache": ({"room": 12, "ends": PADDED}, {}),
    "prompt, position ids": (
        {"rotary": True, "positions": np.array([[3, 9, 1, 0, 2, 5, 5], [8] * S, [1] * S])},
        {"do_rotary": 1},
    ),
    "several new, position ids": (
        {"batch": 1, "queries": 3, "past": 6, "rotary": True, "positions": np.array([[3, 11, 0]])},
        {"do_rotary": 1},
    ),
    "decode, position ids": (
        {"queries": 1, "past": 6, "rotary": True, "positions": np.array([[3], [11], [0]])},
        {"do_rotary": 1},
    ),
}


def compare(inputs: dict[str, np.ndarray | None], tolerance: float, **attributes: Any) -> None:
    """Compare the rows that are keys of their own row, and the keys of the cache that belong to one."""
    twin, kernel = (run(OP, inputs, 3, num_heads=N, **attributes) for run in (by_twin, by_onnxruntime))
    queries = twin[0].shape[1]
    seqlens = inputs["seqlens_k"]
    assert seqlens is not None
    total = int(np.asarray(inputs["total"]))
    for row, end in enumerate(seqlens + 1):
        valid = end if total == queries else queries
        assert_close(twin[0][row, :valid], kernel[0][row, :valid], tolerance)
        for actual, expected in zip(twin[1:], kernel[1:], strict=True):
            assert actual.shape == expected.shape
            assert_close(actual[row, :, :end], expected[row, :, :end], tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("form", FORMS)
def test_is_what_the_cpu_computes(form: str, dtype: Any) -> None:
    given, attributes = FORMS[form]
    inputs = inputs_of(np.random.default_rng(len(form)), dtype=dtype, **given)
    groups = given.get("groups", G)
    # The kernel for float16 rounds at more places than one.
    compare(inputs, 1e-5 if dtype == np.float32 else 1e-2, kv_num_heads=groups, **attributes)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_is_float32_rounded_once(dtype: Any) -> None:
    given = {"queries": 1, "past": 6, "rotary": True, "added": (B, N), "sink": True}
    half = inputs_of(np.random.default_rng(3), dtype=dtype, **given)
    wide = {
        name: array.astype(np.float32) if array is not None and array.dtype == dtype else array
        for name, array in half.items()
    }
    attributes = {"num_heads": N, "kv_num_heads": G, "do_rotary": 1, "softcap": 2.0}
    for actual, expected in zip(by_twin(OP, half, 3, **attributes), by_twin(OP, wide, 3, **attributes), strict=True):
        assert actual.dtype == dtype
        np.testing.assert_array_equal(actual, expected.astype(dtype))


@pytest.mark.parametrize("size", [-1, 1, 3])
def test_attends_as_its_mask_says(size: int) -> None:
    """A window of W keys is `window(W - 1, 0)`; the values tell which keys were attended."""
    inputs = inputs_of(np.random.default_rng(0), groups=1)
    inputs["query"] = np.zeros((B, S, N * D), np.float32)
    inputs["value"] = np.tile(np.eye(S, D, dtype=np.float32), (B, 1, 1))
    (output, *_) = by_twin(OP, inputs, 3, num_heads=N, kv_num_heads=1, local_window_size=size)
    mask = Causal() if size < 0 else Causal() & Window(size - 1, 0)
    weights = output.reshape(B, S, N, D).transpose(0, 2, 1, 3)[..., :S]
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(mask.dense(S, S), weights.shape))


def test_warns_that_cuda_attends_padding_where_it_is_not_causal() -> None:
    inputs = inputs_of(np.random.default_rng(0), ends=PADDED)
    with pytest.warns(KernelsDisagree, match="CUDA attends the padding"):
        compare(inputs, 1e-5, kv_num_heads=G, causal=0)


def test_warns_that_a_window_with_a_bias_is_wider_on_cuda() -> None:
    inputs = inputs_of(np.random.default_rng(0), added=(1, 1))
    with pytest.warns(KernelsDisagree, match="one key more"):
        compare(inputs, 1e-5, kv_num_heads=G, local_window_size=3)


def test_a_row_of_minus_infinity_is_nan_as_in_the_cpu_kernel_for_float16() -> None:
    """The one for float32 gives zero."""
    inputs = inputs_of(np.random.default_rng(0), added=(1, 1), dtype=np.float16)
    assert inputs["added"] is not None
    inputs["added"][..., 2, :] = -np.inf
    for run in (by_twin, by_onnxruntime):
        output = run(OP, inputs, 3, num_heads=N, kv_num_heads=G)[0]
        assert np.isnan(output).all(-1).tolist() == [[row == 2 for row in range(S)]] * B


def empty(inputs: dict[str, np.ndarray | None]) -> dict[str, np.ndarray | None]:
    """Return the inputs of no row."""
    rows = {name: array[:0] if array is not None and array.ndim else array for name, array in inputs.items()}
    assert rows["query"] is not None
    return rows


RNG = np.random.default_rng(0)
REFUSED: dict[str, tuple[dict[str, np.ndarray | None], dict[str, Any], str]] = {
    "a row without keys": (inputs_of(RNG, ends=[S, 0, 2]), {}, "1 to 7 keys in each row"),
    "a row longer than all": (inputs_of(RNG, ends=[S, S + 1, 2]), {}, "1 to 7 keys in each row"),
    "no row": (empty(inputs_of(RNG)), {}, "expected a batch"),
    "several new tokens": (inputs_of(RNG, queries=3, past=2), {}, "need a batch of one"),
    "a cache that is too small": (inputs_of(RNG, queries=1, past=6, room=5), {}, "the cache holds 5 keys"),
    "positions of another shape": (
        inputs_of(RNG, queries=1, past=6, rotary=True, positions=np.zeros((1, 1), np.int64)),
        {"do_rotary": 1},
        r"position_ids of \(3, 1\)",
    ),
    "no cache": ({**inputs_of(RNG), "total": np.array(S + 1, np.int32)}, {}, "need a cache"),
    "a bias that would broadcast": (
        {**inputs_of(RNG), "added": np.zeros((1, 1, 1, S), np.float32)},
        {},
        r"\[3 or 1, 4 or 1, 7, 7\]",
    ),
    "a window that isn't causal": (inputs_of(RNG), {"causal": 0, "local_window_size": 2}, "a window needs causal"),
    "groups that don't divide": (inputs_of(RNG, groups=3), {"kv_num_heads": 3}, "3 heads of keys don't divide 4"),
    "scores as an output": (inputs_of(RNG), {"qk_output": 1}, "no twin"),
    "a quantized cache": ({**inputs_of(RNG), "k_scale": np.ones(1, np.float32)}, {}, "no twin"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_what_has_no_single_meaning(case: str) -> None:
    inputs, attributes, why = REFUSED[case]
    with pytest.raises(ValueError, match=f"com.microsoft.GroupQueryAttention 'node': .*{why}"):
        by_twin(OP, inputs, 3, **{"num_heads": N, "kv_num_heads": G, **attributes})
