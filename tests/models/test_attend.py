"""A mask is applied as its words say, and no row becomes NaN: in any dtype, with any scores, forward and backward."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from maskport.models import Causal, Full, KeyPadding, Segments, Window
from maskport.models.attend import Attend, make_attend, masked_softmax, scaled_dot_product_attention
from torch import Tensor

B, H, G, S, T, D, V = 2, 4, 2, 5, 7, 8, 3
# Rounding of a weight, which is at most 1.
ROUNDING = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 1e-6, torch.float64: 1e-14}
DTYPES = list(ROUNDING)


def explicit(query: Tensor, key: Tensor, value: Tensor, attend: Tensor | None, softcap: float = 0.0) -> Tensor:
    """Attention in float64, by exponentials and sums; a row without keys is 0 / 1."""
    query, key, value = (x.double() for x in (query, key, value))
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.exp() if attend is None else scores.exp() * attend
    total = scores.sum(-1, keepdim=True)
    return scores / torch.where(total == 0, 1.0, total) @ value


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def qkv() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(B, H, S, D), torch.randn(B, G, T, D), torch.randn(B, G, T, V)


@pytest.fixture
def attend() -> Tensor:
    """Per head; a full row, a row with one key, a row with none."""
    mask = torch.rand(B, H, S, T) < 0.6
    mask[0, 0, 0] = True
    mask[0, 1, 2] = torch.arange(T) == 3
    mask[1, :, 4] = False
    return mask


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_sum_to_one_or_to_zero_without_keys(dtype: torch.dtype, attend: Tensor) -> None:
    weights = masked_softmax(torch.randn(B, H, S, T).to(dtype), attend)
    assert weights.dtype == dtype
    assert (weights[~attend] == 0).all()
    torch.testing.assert_close(weights.sum(-1).double(), attend.any(-1).double(), atol=4 * ROUNDING[dtype], rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("end", ["min", "max"])
def test_scores_at_the_end_of_half_stay_finite(dtype: torch.dtype, end: str) -> None:
    scores = torch.full((3, 4), getattr(torch.finfo(dtype), end), dtype=dtype)
    attend = torch.tensor([[True] * 4, [True, True, False, False], [False] * 4])
    expected = torch.tensor([[0.25] * 4, [0.5, 0.5, 0, 0], [0.0] * 4], dtype=dtype)
    assert torch.equal(masked_softmax(scores, attend), expected)


def test_softmax_over_another_dimension() -> None:
    scores, attend = torch.randn(T, S), torch.rand(T, S) < 0.5
    torch.testing.assert_close(masked_softmax(scores, attend, 0), masked_softmax(scores.mT, attend.mT).mT)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_against_explicit_float64(qkv, attend: Tensor, dtype: torch.dtype, need_weights: bool, masked: bool) -> None:
    query, key, value = (x.to(dtype) for x in qkv)
    mask = attend if masked else None
    output, weights = scaled_dot_product_attention(query, key, value, mask, need_weights=need_weights)
    torch.testing.assert_close(
        output.double(), explicit(query, key, value, mask), atol=8 * ROUNDING[dtype], rtol=4 * ROUNDING[dtype]
    )
    assert (weights is None) != need_weights
    if masked:
        assert (output[1, :, 4] == 0).all()


def test_softcap_comes_before_the_mask(qkv, attend: Tensor) -> None:
    query, key, value = qkv
    output, _ = scaled_dot_product_attention(query * 10, key, value, attend, softcap=5.0)
    torch.testing.assert_close(
        output.double(), explicit(query * 10, key, value, attend, softcap=5.0), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("need_weights", [False, True])
def test_scale(qkv, need_weights: bool) -> None:
    query, key, value = qkv
    output, _ = scaled_dot_product_attention(query, key, value, scale=0.5, need_weights=need_weights)
    expected = F.scaled_dot_product_attention(query, key, value, scale=0.5, enable_gqa=True)
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("need_weights", [False, True])
def test_grouped_heads_equal_repeated_heads(qkv, attend: Tensor, need_weights: bool) -> None:
    query, key, value = qkv
    grouped, _ = scaled_dot_product_attention(query, key, value, attend, need_weights=need_weights)
    repeated = (x.repeat_interleave(H // G, 1) for x in (key, value))
    torch.testing.assert_close(grouped, scaled_dot_product_attention(query, *repeated, attend)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [50, 200])
@pytest.mark.parametrize("need_weights", [False, True])
def test_large_half_inputs_stay_finite(attend: Tensor, dtype: torch.dtype, size: int, need_weights: bool) -> None:
    query, key = (size * torch.randn(B, H, n, 64).to(dtype) for n in (S, T))
    value = torch.randn(B, H, T, V).to(dtype)
    if (dtype, size) == (torch.float16, 200):
        assert (query @ key.mT).isinf().any()
    output, _ = scaled_dot_product_attention(query, key, value, attend, need_weights=need_weights)
    expected, _ = scaled_dot_product_attention(query.double(), key.double(), value.double(), attend)
    torch.testing.assert_close(output.double(), expected, atol=8 * ROUNDING[dtype], rtol=4 * ROUNDING[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("need_weights", [False, True])
def test_gradients_are_finite_with_empty_rows(qkv, attend: Tensor, dtype: torch.dtype, need_weights: bool) -> None:
    leaves = [x.to(dtype).requires_grad_() for x in qkv]
    output, _ = scaled_dot_product_attention(*leaves, attend, need_weights=need_weights)
    output.float().square().sum().backward()
    assert all(x.grad.isfinite().all() and x.grad.any() for x in leaves)
    assert (leaves[0].grad[1, :, 4] == 0).all()


def test_dropout_drops_weights(qkv) -> None:
    query, key, _ = qkv
    value = torch.ones(B, G, T, 1)
    for need_weights in (False, True):
        output, weights = scaled_dot_product_attention(query, key, value, dropout_p=0.5, need_weights=need_weights)
        assert not torch.allclose(output, torch.ones(()))
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, S))


def test_a_mask_is_widened_to_queries_and_keys() -> None:
    key_padding = torch.tensor([[True] * T, [False] * T])[:, None, None]
    mask, has_key = Attend.of(key_padding, S, T)
    assert mask.shape == (B, 1, S, T)
    assert has_key.flatten().tolist() == [True, False]


@pytest.mark.parametrize(
    ("mask", "cross", "guarded"),
    [
        (Causal(), False, False),
        (Window(2, 2) | KeyPadding("m"), False, False),
        (Segments("m"), False, False),
        (Causal() & KeyPadding("m"), False, True),
        (Window(-1, -1) & ~Window(0, 0), False, True),
        (Causal(), True, True),
    ],
    ids=str,
)
def test_only_masks_that_can_have_empty_rows_are_guarded(mask, cross: bool, guarded: bool) -> None:
    tensors = {name: torch.ones(B, S, dtype=torch.int64) for name in mask.tensors}
    attend = make_attend(mask, S, S, cross=cross, device=torch.device("cpu"), tensors=tensors)
    assert (attend.has_key is not None) == guarded


def test_a_mask_that_attends_everything_is_no_mask() -> None:
    assert make_attend(Full() | Causal(), S, T, device=torch.device("cpu")) is None


def test_an_additive_mask_is_refused(qkv) -> None:
    with pytest.raises(TypeError, match=r"True means attend; got torch.float32 of shape \[5, 7\]"):
        scaled_dot_product_attention(*qkv, torch.zeros(S, T))


def test_a_mask_whose_batch_would_be_taken_for_heads_is_refused(qkv) -> None:
    with pytest.raises(ValueError, match=r"rank 4; got \[2, 5, 7\]"):
        scaled_dot_product_attention(*qkv, torch.ones(B, S, T).bool())


def test_heads_that_cannot_be_shared_are_refused(qkv) -> None:
    query, key, value = qkv
    with pytest.raises(ValueError, match="3 query heads can't share 2 key/value heads"):
        scaled_dot_product_attention(query[:, :3], key, value)
