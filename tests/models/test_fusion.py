"""Head fusion: what it computes, and that no fusion lets a row read what the attention's mask hid from it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from maskport.models import (
    Causal,
    ConcatFusion,
    CrossHeadFusion,
    KeyPadding,
    MaskedMultiHeadAttention,
    SelfAttentionFusion,
    Window,
)
from maskport.models.fusion import FUSIONS, merge_heads, split_heads
from torch import Tensor, nn

# H * V is not E.
B, H, S, V, E = 2, 3, 5, 4, 10


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def heads() -> Tensor:
    return torch.randn(B, H, S, V)


@pytest.fixture
def attend() -> Tensor:
    """Causal, and the last two positions of row 1 are padding."""
    return Causal().dense(S, S, device="cpu") & torch.tensor([[1] * 5, [1, 1, 1, 0, 0]]).bool()[:, None, None]


def perturb(heads: Tensor, positions: list[int]) -> Tensor:
    """Change these positions of row 1."""
    changed = heads.clone()
    changed[1, :, positions] += 3.0
    return changed


def test_splitting_undoes_merging(heads: Tensor) -> None:
    assert torch.equal(split_heads(merge_heads(heads), H), heads)
    assert torch.equal(merge_heads(heads)[0, 1], torch.cat([heads[0, h, 1] for h in range(H)]))


def test_concat_is_a_linear_layer_over_the_heads_side_by_side(heads: Tensor) -> None:
    fusion = ConcatFusion(E, H, V)
    expected = fusion.out_proj(torch.cat([heads[:, h] for h in range(H)], -1))
    torch.testing.assert_close(fusion(heads), expected)


def test_self_attention_equals_torch(heads: Tensor, attend: Tensor) -> None:
    fusion = SelfAttentionFusion(E, H, V)
    theirs = nn.MultiheadAttention(H * V, H, batch_first=True)
    parts = (fusion.q_proj, fusion.k_proj, fusion.v_proj)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        theirs.out_proj.weight.copy_(torch.eye(H * V))
        theirs.out_proj.bias.zero_()
    x = merge_heads(heads)
    mixed, _ = theirs(x, x, x, attn_mask=~attend.expand(B, H, S, S).flatten(0, 1))
    expected = fusion.out_proj(F.layer_norm(x + mixed, [H * V]))
    torch.testing.assert_close(fusion(heads, attend), expected)


def test_cross_head_attends_over_the_heads_of_each_token(heads: Tensor) -> None:
    fusion = CrossHeadFusion(E, H, V)
    for b, s in ((0, 0), (1, 3)):
        x = heads[b, :, s]
        weights = torch.softmax(fusion.q_proj(x) @ fusion.k_proj(x).mT / V**0.5, -1)
        expected = fusion.out_proj(F.layer_norm((x + weights @ fusion.v_proj(x)).flatten(), [H * V]))
        torch.testing.assert_close(fusion(heads)[b, s], expected)


def test_self_attention_without_the_mask_leaks_padding_and_the_future(heads: Tensor, attend: Tensor) -> None:
    fusion = SelfAttentionFusion(E, H, V)
    for positions, rows in (([3, 4], slice(0, 3)), ([2], slice(0, 2))):
        leak = fusion(perturb(heads, positions))[1, rows] - fusion(heads)[1, rows]
        kept = fusion(perturb(heads, positions), attend)[1, rows] - fusion(heads, attend)[1, rows]
        assert leak.abs().max() > 0.01
        assert (kept == 0).all()


@pytest.mark.parametrize("name", FUSIONS)
def test_attention_carries_its_mask_into_the_fusion(name: str) -> None:
    mask = Causal() & KeyPadding("attention_mask")
    module = MaskedMultiHeadAttention(12, 3, mask=mask, fusion=name).eval()
    attention_mask = torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])
    x = torch.randn(B, S, 12)
    for positions, rows in (([3, 4], slice(0, 3)), ([2], slice(0, 2))):
        changed = x.clone()
        changed[1, positions] += 3.0
        a, b = (module(y, attention_mask=attention_mask)[1, rows] for y in (x, changed))
        assert torch.equal(a, b)


def test_a_window_reaches_twice_as_far_through_the_second_attention() -> None:
    module = MaskedMultiHeadAttention(12, 3, mask=Window(1, 0), fusion="self_attention").eval()
    x = torch.randn(1, S, 12).requires_grad_()
    module(x)[0, 4].sum().backward()
    assert x.grad[0].abs().sum(-1).bool().tolist() == [False, False, True, True, True]


@pytest.mark.parametrize("fusion", FUSIONS.values())
def test_gradients_reach_every_parameter(fusion, heads: Tensor) -> None:
    module = fusion(E, H, V)
    module(heads).square().sum().backward()
    # Adding a vector to all keys adds one number to a query's scores, and softmax doesn't see it.
    assert all(p.grad.any() for name, p in module.named_parameters() if name != "k_proj.bias")


@pytest.mark.parametrize("fusion", [SelfAttentionFusion, CrossHeadFusion])
def test_dropout_only_in_training(fusion, heads: Tensor) -> None:
    module = fusion(E, H, V, dropout=0.5)
    assert not torch.equal(module(heads), module(heads))
    module.eval()
    assert torch.equal(module(heads), module(heads))


@pytest.mark.parametrize("fusion", FUSIONS.values())
def test_without_bias(fusion, heads: Tensor) -> None:
    module = fusion(E, H, V, bias=False)
    assert not any(name.endswith("bias") for name, _ in module.named_parameters())
    assert module(heads).shape == (B, S, E)


def test_the_cache_of_the_second_attention(heads: Tensor) -> None:
    fusion = SelfAttentionFusion(E, H, V)
    full = fusion(heads, Causal().dense(S, S, device="cpu"))
    past = None
    for s in range(S):
        step = Causal().dense(1, s + 1, s, device="cpu")
        output, past = fusion(heads[:, :, s : s + 1], step, past_key_value=past, use_cache=True)
        torch.testing.assert_close(output, full[:, s : s + 1])
    assert [x.shape for x in past] == [(B, H, S, V)] * 2


def test_any_module_that_takes_heads_is_a_fusion(heads: Tensor) -> None:
    class Mean(nn.Module):
        def forward(self, heads_BHSV: Tensor) -> Tensor:
            return heads_BHSV.mean(1)

    module = MaskedMultiHeadAttention(12, 3, fusion=Mean())
    assert module(torch.randn(B, S, 12)).shape == (B, S, 4)


@pytest.mark.parametrize("name", FUSIONS)
def test_a_list_of_heads_is_taken_as_their_stack(name: str, heads: Tensor) -> None:
    fusion = FUSIONS[name](E, H, V)
    torch.testing.assert_close(fusion(list(heads.unbind(1))), fusion(heads))


@pytest.mark.parametrize("name", FUSIONS)
def test_heads_of_an_attention_can_be_fused_outside_of_it(name: str) -> None:
    attention = MaskedMultiHeadAttention(E, H, head_dim=V, mask=Causal(), fusion=name).eval()
    output, heads = attention(torch.randn(B, S, E), need_heads=True)
    assert [head.shape for head in heads] == [(B, S, V)] * H
    masked = (Causal().dense(S, S, device="cpu"),) if attention.mixes_positions else ()
    torch.testing.assert_close(attention.fusion(heads, *masked), output)
