"""MaskedMultiHeadAttention against torch.nn, its masks, its cache, and the same in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from maskport.models import (
    Adjacency,
    Causal,
    Dense,
    Full,
    KeyPadding,
    MaskedMultiHeadAttention,
    QueryPadding,
    SelfAttentionFusion,
    Window,
)
from torch import Tensor, nn

B, S, T, E, H = 3, 7, 11, 24, 4
PADDED = Causal() & KeyPadding("attention_mask")
PATTERNS = {
    "ones": [1, 1, 1, 1, 1, 1, 1],
    "right": [1, 1, 1, 1, 0, 0, 0],
    "left": [0, 0, 0, 1, 1, 1, 1],
    "holes": [1, 0, 1, 1, 0, 1, 0],
    "one token": [0, 0, 1, 0, 0, 0, 0],
    "none": [0, 0, 0, 0, 0, 0, 0],
}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, S, E)


def pattern(name: str) -> Tensor:
    """The pattern in the middle row of a batch of three, between full rows."""
    return torch.tensor([PATTERNS["ones"], PATTERNS[name], PATTERNS["ones"]])


def biased(module: nn.Module) -> nn.Module:
    """torch.nn starts with biases of zero, which would hide a bias that is lost."""
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return module.eval()


# Against torch.nn.


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kdim", [None, 10])
def test_from_torch_cross_attention(x: Tensor, bias: bool, kdim: int | None) -> None:
    vdim = None if kdim is None else 6
    theirs = biased(nn.MultiheadAttention(E, H, bias=bias, kdim=kdim, vdim=vdim, batch_first=True))
    key, value = torch.randn(B, T, kdim or E), torch.randn(B, T, vdim or E)
    padded = torch.rand(B, T) < 0.4
    expected, weights = theirs(x, key, value, key_padding_mask=padded, average_attn_weights=False)
    ours = MaskedMultiHeadAttention.from_torch(theirs, mask=KeyPadding("valid"))
    assert not ours.training
    got = ours(x, key, value, need_weights=True, valid=~padded)
    torch.testing.assert_close(got, (expected, weights))
    torch.testing.assert_close(ours(x, key, value, valid=~padded), expected)


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("name", ["ones", "right", "holes"])
def test_from_torch_causal_and_padded(x: Tensor, kind: str, name: str) -> None:
    theirs = biased(nn.MultiheadAttention(E, H, batch_first=True))
    masked = torch.ones(S, S, dtype=torch.bool).triu(1)
    padded = pattern(name) == 0
    if kind == "float":
        masked, padded = (torch.zeros(m.shape).masked_fill(m, -torch.inf) for m in (masked, padded))
    expected, _ = theirs(x, x, x, attn_mask=masked, key_padding_mask=padded, need_weights=False)
    ours = MaskedMultiHeadAttention.from_torch(theirs, mask=PADDED)
    torch.testing.assert_close(ours(x, attention_mask=pattern(name)), expected)


def test_from_torch_with_batch_second(x: Tensor) -> None:
    theirs = biased(nn.MultiheadAttention(E, H))
    expected, _ = theirs(*[x.transpose(0, 1)] * 3)
    torch.testing.assert_close(MaskedMultiHeadAttention.from_torch(theirs)(x), expected.transpose(0, 1))


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_from_torch_refuses_keys_without_a_position(option: str) -> None:
    with pytest.raises(ValueError, match="no position"):
        MaskedMultiHeadAttention.from_torch(nn.MultiheadAttention(E, H, **{option: True}))


# Masks.


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("fusion", ["concat", "self_attention", "cross_head"])
def test_padding_never_reaches_a_valid_row(x: Tensor, name: str, fusion: str) -> None:
    module = MaskedMultiHeadAttention(E, H, num_kv_heads=2, mask=KeyPadding("attention_mask"), fusion=fusion)
    mask, changed = pattern(name), torch.where(pattern(name)[..., None] == 0, 100.0, x)
    valid = mask.bool()
    before, after = (module(y, attention_mask=mask) for y in (x, changed))
    assert after.isfinite().all()
    assert torch.equal(before[valid], after[valid])
    # The same tokens alone, without padding, give the same.
    alone = module(x[1:2, valid[1]], attention_mask=torch.ones(1, int(valid[1].sum()), dtype=torch.int64))
    torch.testing.assert_close(alone[0], before[1, valid[1]])


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("fusion", ["concat", "self_attention", "cross_head"])
def test_a_row_of_a_batch_equals_the_row_alone(x: Tensor, name: str, fusion: str) -> None:
    module = MaskedMultiHeadAttention(E, H, mask=PADDED, fusion=fusion)
    batch = module(x, attention_mask=pattern(name))
    for b in range(B):
        torch.testing.assert_close(batch[b : b + 1], module(x[b : b + 1], attention_mask=pattern(name)[b : b + 1]))


@pytest.mark.parametrize("fusion", ["concat", "self_attention", "cross_head"])
def test_the_future_is_not_read(x: Tensor, fusion: str) -> None:
    module = MaskedMultiHeadAttention(E, H, mask=Causal(), fusion=fusion)
    changed = torch.cat((x[:, :4], x[:, 4:] + 3.0), 1)
    assert torch.equal(module(x)[:, :4], module(changed)[:, :4])


@pytest.mark.parametrize("name", PATTERNS)
def test_weights_sum_to_one_or_to_zero_without_keys(x: Tensor, name: str) -> None:
    module = MaskedMultiHeadAttention(E, H, mask=PADDED)
    output, weights = module(x, need_weights=True, attention_mask=pattern(name))
    has_key = pattern(name).cumsum(-1) > 0
    torch.testing.assert_close(weights.sum(-1), has_key[:, None].expand(B, H, S).float())
    torch.testing.assert_close(output, module(x, attention_mask=pattern(name)))
    torch.testing.assert_close(output[~has_key], module.fusion.out_proj.bias.expand(int((~has_key).sum()), E))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("fusion", ["concat", "self_attention", "cross_head"])
def test_half_types(x: Tensor, dtype: torch.dtype, name: str, fusion: str) -> None:
    module = MaskedMultiHeadAttention(E, H, mask=PADDED, fusion=fusion)
    expected = module(x, attention_mask=pattern(name))
    output = module.to(dtype)(x.to(dtype), attention_mask=pattern(name))
    assert output.dtype == dtype
    torch.testing.assert_close(output.float(), expected, atol=0.05 if dtype == torch.bfloat16 else 0.01, rtol=0)


def test_a_mask_with_heads_and_one_without(x: Tensor) -> None:
    module = MaskedMultiHeadAttention(E, H, mask=Dense("per_head") & Adjacency("graph"))
    per_head, graph = torch.rand(1, H, S, S) < 0.7, torch.randint(0, 2, (B, S, S))
    _, weights = module(x, need_weights=True, per_head=per_head, graph=graph)
    assert torch.equal(weights != 0, per_head & graph.bool()[:, None])


def test_a_ready_mask_gives_what_the_expression_gives(x: Tensor) -> None:
    module = MaskedMultiHeadAttention(E, H, mask=Window(2, 1) & QueryPadding("m"))
    dense = module.mask.dense(S, S, m=pattern("holes"))
    torch.testing.assert_close(module(x, attend=dense), module(x, m=pattern("holes")))


def test_a_full_mask_needs_no_tensors(x: Tensor) -> None:
    module = MaskedMultiHeadAttention(E, H, mask=Causal() | ~Causal())
    torch.testing.assert_close(module(x), module(x, attend=Full().dense(S, S, device="cpu")))


# Options.


def test_heads_are_what_the_fusion_joins(x: Tensor) -> None:
    module = MaskedMultiHeadAttention(E, H, head_dim=5, fusion="concat")
    output, heads = module(x, need_heads=True)
    assert [tuple(head.shape) for head in heads] == [(B, S, 5)] * H
    torch.testing.assert_close(output, module.fusion.out_proj(torch.cat(heads, -1)))


def test_what_is_asked_for_comes_in_order(x: Tensor) -> None:
    output, weights, heads, present = MaskedMultiHeadAttention(E, H, num_kv_heads=2)(
        x, need_weights=True, need_heads=True, use_cache=True
    )
    assert output.shape == (B, S, E)
    assert weights.shape == (B, H, S, S)
    assert len(heads) == H
    assert [tuple(tensor.shape) for tensor in present] == [(B, 2, S, 6)] * 2


def test_grouped_heads_equal_repeated_projections(x: Tensor) -> None:
    grouped = MaskedMultiHeadAttention(E, H, num_kv_heads=2, mask=Causal())
    repeated = MaskedMultiHeadAttention(E, H, mask=Causal())
    state = grouped.state_dict()
    for name in ("k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias"):
        state[name] = state[name].unflatten(0, (2, -1)).repeat_interleave(2, 0).flatten(0, 1)
    repeated.load_state_dict(state)
    torch.testing.assert_close(grouped(x), repeated(x))


def test_scale_and_softcap_reach_the_scores(x: Tensor) -> None:
    module = MaskedMultiHeadAttention(E, H, scale=2.0, softcap=0.5)
    _, weights = module(x, need_weights=True)
    query, key = (p(x).unflatten(-1, (H, -1)).transpose(1, 2) for p in (module.q_proj, module.k_proj))
    torch.testing.assert_close(weights, torch.softmax(0.5 * torch.tanh(2.0 * query @ key.mT / 0.5), -1))


def test_dropout_only_in_training(x: Tensor) -> None:
    module = MaskedMultiHeadAttention(E, H, dropout=0.5)
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))


@pytest.mark.parametrize("fusion", ["concat", "self_attention", "cross_head"])
def test_gradients_reach_every_parameter_and_are_finite_with_empty_rows(x: Tensor, fusion: str) -> None:
    module = MaskedMultiHeadAttention(E, H, num_kv_heads=2, mask=PADDED, fusion=fusion)
    module(x, attention_mask=pattern("left")).square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad.isfinite().all(), name
        # Adding a vector to all keys adds one number to a query's scores, and softmax doesn't see it.
        assert parameter.grad.any() or name.endswith("k_proj.bias"), name


def test_printing_shows_the_mask() -> None:
    assert "num_heads=4, num_kv_heads=4, mask=causal & padding(attention_mask)" in repr(
        MaskedMultiHeadAttention(E, H, mask=PADDED)
    )


# Cache.


@pytest.mark.parametrize("fusion", ["concat", "self_attention", "cross_head"])
@pytest.mark.parametrize("mask", [PADDED, Window(2, 0) & KeyPadding("attention_mask")], ids=str)
def test_steps_with_a_cache_equal_the_full_forward(x: Tensor, fusion: str, mask) -> None:
    module = MaskedMultiHeadAttention(E, H, num_kv_heads=2, mask=mask, fusion=fusion)
    attention_mask = pattern("left")
    full = module(x, attention_mask=attention_mask)
    past, start = None, 0
    for size in (3, 1, 2, 1):
        end = start + size
        output, past = module(
            x[:, start:end], past_key_value=past, use_cache=True, attention_mask=attention_mask[:, :end]
        )
        torch.testing.assert_close(output, full[:, start:end])
        start = end
    assert len(past) == module.cache_size


def test_the_cache_of_cross_attention_is_the_projected_memory(x: Tensor) -> None:
    module = MaskedMultiHeadAttention(E, H)
    memory = torch.randn(B, T, E)
    full, present = module(x, memory, use_cache=True)
    output, again = module(x[:, 2:], torch.full_like(memory, torch.nan), past_key_value=present, use_cache=True)
    torch.testing.assert_close(output, full[:, 2:])
    assert again == present


# Refusals.


@pytest.mark.parametrize("given", [{}, {"attention_mask": torch.ones(B, S), "other": torch.ones(B)}])
def test_a_missing_or_unknown_tensor_is_named(x: Tensor, given: dict[str, Tensor]) -> None:
    with pytest.raises(TypeError) as error:
        MaskedMultiHeadAttention(E, H, mask=PADDED)(x, **given)
    message = str(error.value)
    assert "`causal & padding(attention_mask)` needs attention_mask (bool or int [B, K])" in message
    assert ("other ([3])" if given else "given: none") in message


def test_a_ready_mask_and_tensors_are_refused(x: Tensor) -> None:
    with pytest.raises(TypeError, match="given as attend needs no tensor; given: attention_mask"):
        MaskedMultiHeadAttention(E, H, mask=PADDED)(x, attend=torch.ones(S, S).bool(), attention_mask=pattern("ones"))


@pytest.mark.parametrize("name", ["key", "attend", "query"])
def test_a_tensor_called_as_a_parameter_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"names the tensor '{name}'"):
        MaskedMultiHeadAttention(E, H, mask=KeyPadding(name))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 5}, "embed_dim 24 is no multiple of num_heads 5"),
        ({"num_heads": 4, "num_kv_heads": 3}, "num_kv_heads 3 is no divisor"),
        ({"num_heads": 4, "fusion": "sum"}, "unknown fusion 'sum': give one of concat"),
    ],
)
def test_sizes_and_names_are_checked(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskedMultiHeadAttention(E, **options)


def test_value_without_key_is_refused(x: Tensor) -> None:
    with pytest.raises(ValueError, match="value was given without key"):
        MaskedMultiHeadAttention(E, H)(x, value=x)


def test_mixing_query_positions_needs_their_mask(x: Tensor) -> None:
    module = MaskedMultiHeadAttention(E, H, mask=KeyPadding("valid"), fusion="self_attention")
    memory, valid = torch.randn(B, T, E), torch.ones(B, T).bool()
    with pytest.raises(ValueError, match="SelfAttentionFusion mixes query positions"):
        module(x, memory, valid=valid)
    causal = Causal().dense(S, S, device="cpu")
    changed = torch.cat((x[:, :4], x[:, 4:] + 3.0), 1)
    before, after = (module(y, memory, valid=valid, query_attend=causal)[:, :4] for y in (x, changed))
    assert torch.equal(before, after)
    with pytest.raises(ValueError, match="leave it out"):
        MaskedMultiHeadAttention(E, H)(x, memory, query_attend=causal)


def test_a_cache_of_another_memory_is_refused(x: Tensor) -> None:
    module = MaskedMultiHeadAttention(E, H)
    _, present = module(x, torch.randn(B, T, E), use_cache=True)
    with pytest.raises(ValueError, match="key has 7 positions, but past_key_value holds 11"):
        module(x, x, past_key_value=present)


def test_a_cached_cross_attention_cannot_place_its_queries(x: Tensor) -> None:
    module = MaskedMultiHeadAttention(E, H, mask=Causal())
    _, present = module(x, x, use_cache=True)
    with pytest.raises(ValueError, match="doesn't say where the queries stand"):
        module(x[:, :1], x, past_key_value=present)


# ONNX Runtime.

AXES = {0: "batch", 1: "seq"}
MODULES = {
    "grouped, second attention": lambda: MaskedMultiHeadAttention(
        E, H, num_kv_heads=2, mask=PADDED, fusion="self_attention"
    ),
    "softcap, across heads": lambda: MaskedMultiHeadAttention(
        E, H, num_kv_heads=2, mask=KeyPadding("attention_mask"), softcap=4.0, fusion="cross_head"
    ),
}


@pytest.fixture(scope="session", params=[(name, opset) for name in MODULES for opset in (18, 23)], ids=str)
def exported(request: pytest.FixtureRequest):
    """A module in eval mode, and an ONNX Runtime session of it."""
    ort = pytest.importorskip("onnxruntime")
    from maskport.export import export

    name, opset = request.param
    torch.manual_seed(0)
    module = MODULES[name]().eval()
    example = {"query": torch.randn(2, 5, E), "attention_mask": torch.ones(2, 5, dtype=torch.int64)}
    model = export(module, example, dynamic_shapes=dict.fromkeys(example, AXES), opset_version=opset)
    return module, ort.InferenceSession(model.serialize(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", PATTERNS)
def test_the_exported_module_equals_eager(exported, x: Tensor, name: str) -> None:
    module, session = exported
    with torch.no_grad():
        expected = module(x, attention_mask=pattern(name)).numpy()
    (output,) = session.run(None, {"query": x.numpy(), "attention_mask": pattern(name).numpy()})
    # Rows without keys, too: "none" and the first rows of "left" are rows of zero before the output layer.
    np.testing.assert_allclose(output, expected, atol=2e-6)


def test_a_half_module_is_finite_in_onnx_runtime(x: Tensor) -> None:
    ort = pytest.importorskip("onnxruntime")
    from maskport.export import export

    module = MaskedMultiHeadAttention(E, H, mask=PADDED, fusion=SelfAttentionFusion(E, H, 6)).half().eval()
    x = x.half()
    example = {"query": x[:2], "attention_mask": pattern("ones")[:2]}
    model = export(module, example, dynamic_shapes=dict.fromkeys(example, AXES), opset_version=18)
    session = ort.InferenceSession(model.serialize(), providers=["CPUExecutionProvider"])
    for name in PATTERNS:
        (output,) = session.run(None, {"query": x.numpy(), "attention_mask": pattern(name).numpy()})
        with torch.no_grad():
            expected = module(x, attention_mask=pattern(name))
        np.testing.assert_allclose(output, expected.numpy(), atol=5e-3)
