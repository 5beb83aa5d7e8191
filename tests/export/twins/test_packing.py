"""Packed attention and padding, which no kernel on the CPU has, against rows that are padded and masked one by one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from maskport.models import KeyPadding

from .one_node import assert_close, by_onnxruntime, by_twin, normal

N, D = 2, 8
HIDDEN = N * D
OP = "PackedMultiHeadAttention"
COUNTS = {
    "mixed": [3, 1, 5],
    "full": [4, 4],
    "one row": [6],
    "an empty row": [2, 0, 3],
    "single tokens": [1, 1, 1],
    "no token": [0, 0],
}


def dense_attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, attend: np.ndarray, scale: float, bias: np.ndarray | None
) -> np.ndarray:
    """Attend in float64, one head of one query at a time, of padded rows [B, S, hidden]."""
    batch, length, _ = query.shape
    output = np.zeros((batch, length, value.shape[-1]))
    sizes = key.shape[-1] // N, value.shape[-1] // N
    attend = np.broadcast_to(attend, (batch, N, length, length))
    for b, h, q in itertools.product(range(batch), range(N), range(length)):
        keys = np.flatnonzero(attend[b, h, q])
        if not len(keys):
            continue
        part = slice(h * sizes[0], (h + 1) * sizes[0])
        scores = np.array([query[b, q, part].astype(np.float64) @ key[b, k, part] for k in keys]) * scale
        if bias is not None:
            scores += np.broadcast_to(bias, attend.shape)[b, h, q, keys]
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        part = slice(h * sizes[1], (h + 1) * sizes[1])
        output[b, q, part] = sum(weight * value[b, k, part] for weight, k in zip(weights, keys, strict=True))
    return output


def packed(rows: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """Return the first tokens of each padded row, one after the other."""
    tokens = [rows[b, i] for b, count in enumerate(counts) for i in range(count)]
    return np.array(tokens, rows.dtype).reshape(sum(counts), *rows.shape[2:])


def layout_of(counts: Sequence[int], length: int) -> dict[str, np.ndarray]:
    """Return token_offset and cumulative_sequence_length, by loops."""
    tokens = [b * length + i for b, count in enumerate(counts) for i in range(count)]
    padding = [b * length + i for b, count in enumerate(counts) for i in range(count, length)]
    return {
        "token_offset": np.array(tokens + padding, np.int32).reshape(len(counts), length),
        "cumulative": np.array([sum(counts[:b]) for b in range(len(counts) + 1)], np.int32),
    }


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "apart": ({}, {}),
    "packed": ({"together": True}, {}),
    "scale": ({}, {"scale": 0.3}),
    "bias": ({"bias": True}, {}),
    "packed, bias": ({"together": True, "bias": True}, {}),
    "other value size": ({"value": 2 * HIDDEN, "bias": True}, {}),
    "longer rows than sequences": ({"spare": 3, "added": (1, 1)}, {}),
    **{f"added {shape}": ({"added": shape}, {}) for shape in [(1, 1), (1, N), ("B", 1), ("B", N)]},
}


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("form", FORMS)
def test_packed_is_padded_and_masked(form: str, counts: list[int]) -> None:
    given, attributes = FORMS[form]
    rng = np.random.default_rng(len(form) + sum(counts))
    batch, length = len(counts), max(counts) + given.get("spare", 0)
    rows = [normal(rng, batch, length, size) for size in (HIDDEN, HIDDEN, given.get("value", HIDDEN))]
    biases = [normal(rng, row.shape[-1]) if given.get("bias") else np.zeros(row.shape[-1], np.float32) for row in rows]
    added = None
    if "added" in given:
        shape = [batch if size == "B" else size for size in given["added"]]
        added = normal(rng, *shape, length, length)
    tokens = [packed(row, counts) for row in rows]
    inputs: dict[str, np.ndarray | None] = {
        "query": np.stack([part.reshape(len(part), N, D) for part in tokens], 2)
        if given.get("together")
        else tokens[0],
        "key": None if given.get("together") else tokens[1],
        "value": None if given.get("together") else tokens[2],
        "bias": np.concatenate(biases) if given.get("bias") else None,
        **layout_of(counts, length),
        "added": added,
    }
    (actual,) = by_twin(OP, inputs, num_heads=N, **attributes)
    is_token = np.arange(length) < np.array(counts)[:, None]
    attend = KeyPadding("m").dense(length, length, m=is_token)
    expected = dense_attention(
        *(row + bias for row, bias in zip(rows, biases, strict=True)), attend, attributes.get("scale", D**-0.5), added
    )
    assert_close(actual, packed(expected, counts).astype(np.float32), 1e-5)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_is_float32_rounded_once(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    parts = {name: normal(rng, 9, HIDDEN, dtype=dtype) for name in ("query", "key", "value")}
    wide = {name: part.astype(np.float32) for name, part in parts.items()}
    rest = {"bias": None, **layout_of([3, 1, 5], 5)}
    (actual,), (expected,) = (by_twin(OP, {**given, **rest}, num_heads=N) for given in (parts, wide))
    assert actual.dtype == dtype
    np.testing.assert_array_equal(actual, expected.astype(dtype))


def test_from_padded_to_packed_and_back_is_attention_of_the_lengths() -> None:
    """The three operators together are MultiHeadAttention with lengths, on the rows of tokens."""
    rng = np.random.default_rng(0)
    counts = np.array([3, 1, 5], np.int32)
    rows = {name: normal(rng, 3, 5, HIDDEN) for name in ("query", "key", "value")}
    removed = {name: by_twin("RemovePadding", {"x": row, "counts": counts}, 4) for name, row in rows.items()}
    tokens = {name: parts[0] for name, parts in removed.items()}
    _, offsets, cumulative, _ = removed["query"]
    (output,) = by_twin(OP, {**tokens, "bias": None, "token_offset": offsets, "cumulative": cumulative}, num_heads=N)
    (restored,) = by_twin("RestorePadding", {"x": output, "token_offset": offsets})
    (expected,) = by_onnxruntime("MultiHeadAttention", {**rows, "bias": None, "lengths": counts}, num_heads=N)
    assert_close(restored, expected * (np.arange(5) < counts[:, None])[..., None])


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_padding_is_removed_and_restored(counts: list[int], dtype: Any) -> None:
    length = max(counts)
    rows = normal(np.random.default_rng(0), len(counts), length, HIDDEN, dtype=dtype)
    tokens, offsets, cumulative, longest = by_twin(
        "RemovePadding", {"x": rows, "counts": np.array(counts, np.int32)}, 4
    )
    assert tokens.dtype == dtype
    np.testing.assert_array_equal(tokens, packed(rows, counts))
    expected = layout_of(counts, length)
    np.testing.assert_array_equal(offsets, expected["token_offset"])
    np.testing.assert_array_equal(cumulative, expected["cumulative"])
    assert longest.tolist() == [length]
    assert {array.dtype for array in (offsets, cumulative, longest)} == {np.dtype(np.int32)}
    (restored,) = by_twin("RestorePadding", {"x": tokens, "token_offset": offsets})
    for b, count in enumerate(counts):
        np.testing.assert_array_equal(restored[b, :count], rows[b, :count])
        assert not restored[b, count:].any()


def test_tokens_return_to_wherever_they_came_from() -> None:
    """RestorePadding, unlike the attention, takes any order: rows with holes and padding on the left."""
    places = np.array([1, 3, 4, 0, 2, 5], np.int32).reshape(2, 3)
    (restored,) = by_twin("RestorePadding", {"x": np.eye(3, dtype=np.float32), "token_offset": places})
    assert restored.argmax(-1).tolist() == [[0, 0, 0], [1, 2, 0]]
    assert restored.any(-1).tolist() == [[False, True, False], [True, True, False]]


def test_the_example_of_the_documentation() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4, 1)
    tokens, offsets, cumulative, _ = by_twin("RemovePadding", {"x": x, "counts": np.array([1, 2, 4], np.int32)}, 4)
    assert tokens.ravel().tolist() == [0, 4, 5, 8, 9, 10, 11]
    assert offsets.ravel().tolist() == [0, 4, 5, 8, 9, 10, 11, 1, 2, 3, 6, 7]
    assert cumulative.tolist() == [0, 1, 3, 7]


def inputs_of(**changes: np.ndarray | None) -> dict[str, np.ndarray | None]:
    """Return nine tokens of three sequences, with changes."""
    rng = np.random.default_rng(0)
    parts = {name: normal(rng, 9, HIDDEN) for name in ("query", "key", "value")}
    return {**parts, "bias": None, **layout_of([3, 1, 5], 5), "added": None, **changes}


REFUSED: dict[str, tuple[dict[str, np.ndarray | None], str]] = {
    "rows padded on the left": (
        inputs_of(token_offset=np.array([2, 3, 4, 9, *range(10, 15), 0, 1, 5, 6, 7, 8], np.int32).reshape(3, 5)),
        "padded on the right",
    ),
    "rows shorter than a sequence": (inputs_of(token_offset=np.zeros((3, 4), np.int32)), "5 tokens has no room in 4"),
    "too few sequences": (inputs_of(cumulative=np.array([0, 3, 9], np.int32)), r"of \[4\] to grow"),
    "tokens of no sequence": (inputs_of(cumulative=np.array([0, 3, 4, 8], np.int32)), "to the 9 tokens"),
    "sequences that shrink": (inputs_of(cumulative=np.array([0, 4, 3, 9], np.int32)), "to grow"),
    "a bias of packed length": (inputs_of(added=np.zeros((1, 1, 9, 9), np.float32)), r"1, 5, 5\]"),
    "fewer keys than queries": (inputs_of(key=np.zeros((8, HIDDEN), np.float32)), "as many keys"),
    "no layout": (inputs_of(token_offset=None), "expected token_offset"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_what_kernels_read_differently(case: str) -> None:
    inputs, why = REFUSED[case]
    with pytest.raises(ValueError, match=f"com.microsoft.PackedMultiHeadAttention 'node': .*{why}"):
        by_twin(OP, inputs, num_heads=N)


@pytest.mark.parametrize(
    ("op", "inputs", "why"),
    [
        ("RemovePadding", {"x": np.zeros((2, 3, 1)), "counts": np.array([1, 4], np.int32)}, "from 0 to 3"),
        ("RestorePadding", {"x": np.zeros((2, 1)), "offset": np.array([[0, 0, 1]], np.int32)}, "each of 1 x 3 places"),
        ("RestorePadding", {"x": np.zeros((4, 1)), "offset": np.array([[0, 1, 2]], np.int32)}, "the 4 tokens' first"),
    ],
)
def test_refuses_a_layout_that_is_none(op: str, inputs: dict[str, np.ndarray], why: str) -> None:
    with pytest.raises(ValueError, match=f"com.microsoft.{op} 'node': .*{why}"):
        by_twin(op, inputs, 4 if op == "RemovePadding" else 1)
