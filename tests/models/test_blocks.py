"""Encoder and decoder against torch.nn, their masks, incremental decoding, and the same in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from maskport.models import (
    Causal,
    CrossHeadFusion,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    Full,
    KeyPadding,
    MaskedMultiHeadAttention,
    Window,
)
from maskport.models import attend as attend_module
from torch import Tensor, nn

B, S, T, E, H, FF = 3, 7, 11, 24, 4, 40
FUSIONS = ["concat", "self_attention", "cross_head"]
RIGHT = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0]])
LEFT = RIGHT.flip(1)
MEMORY = torch.tensor([[1] * T, [0, 0, 1, 0, 1] + [0] * 6, [0] * T])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, S, E)


@pytest.fixture
def memory() -> Tensor:
    return torch.randn(B, T, E)


def like(theirs: nn.Module, ours: nn.Module) -> nn.Module:
    """Give ours the weights of a torch.nn layer, after making its biases and norms unlike their start."""
    for parameter in theirs.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5)
    for name, module in theirs.named_children():
        if isinstance(module, nn.MultiheadAttention):
            mask = ours.get_submodule(name).mask
            setattr(ours, name, MaskedMultiHeadAttention.from_torch(module, mask=mask))
        else:
            ours.get_submodule(name).load_state_dict(module.state_dict())
    theirs.eval()
    return ours.eval()


# Against torch.nn.


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu", F.silu])
@pytest.mark.parametrize("bias", [True, False])
def test_encoder_layer_equals_torch(x: Tensor, norm_first: bool, activation, bias: bool) -> None:
    options = {"norm_first": norm_first, "bias": bias}
    theirs = nn.TransformerEncoderLayer(E, H, FF, 0.1, activation, 1e-3, batch_first=True, **options)
    mask = Causal() & KeyPadding("attention_mask")
    ours = like(theirs, EncoderLayer(E, H, FF, 0.1, activation, 1e-3, mask=mask, **options))
    causal = torch.ones(S, S, dtype=torch.bool).triu(1)
    expected = theirs(x, src_mask=causal, src_key_padding_mask=RIGHT == 0)
    torch.testing.assert_close(ours(x, attention_mask=RIGHT), expected)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu", F.silu])
@pytest.mark.parametrize("bias", [True, False])
def test_decoder_layer_equals_torch(x: Tensor, memory: Tensor, norm_first: bool, activation, bias: bool) -> None:
    options = {"norm_first": norm_first, "bias": bias}
    theirs = nn.TransformerDecoderLayer(E, H, FF, 0.1, activation, 1e-3, batch_first=True, **options)
    memory_mask = KeyPadding("memory_padding")
    ours = like(theirs, DecoderLayer(E, H, FF, 0.1, activation, 1e-3, memory_mask=memory_mask, **options))
    causal = torch.ones(S, S, dtype=torch.bool).triu(1)
    expected = theirs(x, memory, tgt_mask=causal, memory_key_padding_mask=MEMORY == 0)
    # Row 2 has no memory at all, and torch.nn gives NaN.
    got = ours(x, memory, memory_padding=MEMORY)
    torch.testing.assert_close(got[:2], expected[:2])
    assert got.isfinite().all()


def test_encoder_equals_torch(x: Tensor) -> None:
    layer, norm = nn.TransformerEncoderLayer(E, H, FF, batch_first=True), nn.LayerNorm(E)
    theirs = nn.TransformerEncoder(layer, 3, norm, enable_nested_tensor=False).eval()
    ours = Encoder(EncoderLayer(E, H, FF, mask=KeyPadding("attention_mask")), 3, norm).eval()
    for one, two in zip(theirs.layers, ours.layers, strict=True):
        like(one, two)
    expected = theirs(x, src_key_padding_mask=LEFT == 0)
    valid = LEFT.bool()
    torch.testing.assert_close(ours(x, attention_mask=LEFT)[valid], expected[valid])


def test_decoder_equals_torch(x: Tensor, memory: Tensor) -> None:
    theirs = nn.TransformerDecoder(nn.TransformerDecoderLayer(E, H, FF, batch_first=True), 2, nn.LayerNorm(E)).eval()
    ours = Decoder(DecoderLayer(E, H, FF), 2, theirs.norm).eval()
    for one, two in zip(theirs.layers, ours.layers, strict=True):
        like(one, two)
    causal = torch.ones(S, S, dtype=torch.bool).triu(1)
    torch.testing.assert_close(ours(x, memory), theirs(x, memory, tgt_mask=causal))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (EncoderLayer(E, H), nn.TransformerEncoderLayer(E, H)),
        (DecoderLayer(E, H), nn.TransformerDecoderLayer(E, H)),
    ],
)
def test_submodules_are_named_as_in_torch(ours: nn.Module, theirs: nn.Module) -> None:
    assert {name for name, _ in ours.named_children()} == {name for name, _ in theirs.named_children()}


def test_dropout_only_in_training(x: Tensor) -> None:
    layer = EncoderLayer(E, H, FF, 0.5)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


# Masks.


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("padding", [RIGHT, LEFT], ids=["right", "left"])
def test_encoder_rows_equal_their_tokens_alone(x: Tensor, fusion: str, padding: Tensor) -> None:
    layer = EncoderLayer(E, H, FF, mask=Causal() & KeyPadding("attention_mask"), num_kv_heads=2, fusion=fusion)
    encoder = Encoder(layer, 2).eval()
    valid = padding.bool()
    output = encoder(torch.where(valid[..., None], x, 100.0), attention_mask=padding)
    assert output.isfinite().all()
    for b in range(B):
        ones = torch.ones(1, int(valid[b].sum()), dtype=torch.int64)
        torch.testing.assert_close(encoder(x[b : b + 1, valid[b]], attention_mask=ones)[0], output[b, valid[b]])


@pytest.mark.parametrize("fusion", FUSIONS)
def test_decoder_reads_neither_the_future_nor_padding(x: Tensor, memory: Tensor, fusion: str) -> None:
    mask, memory_mask = Causal() & KeyPadding("padding"), KeyPadding("memory_padding")
    decoder = Decoder(DecoderLayer(E, H, FF, mask=mask, memory_mask=memory_mask, fusion=fusion), 2).eval()
    tensors = {"padding": LEFT, "memory_padding": MEMORY}
    expected = decoder(x, memory, **tensors)
    changed_x = torch.where(LEFT[..., None] == 0, 100.0, x)
    changed_x[:, 5:] += 3.0
    changed_memory = torch.where(MEMORY[..., None] == 0, 100.0, memory)
    got = decoder(changed_x, changed_memory, **tensors)
    kept = LEFT.bool()
    kept[:, 5:] = False
    assert torch.equal(got[kept], expected[kept])
    assert got.isfinite().all()


def test_one_tensor_may_feed_both_masks(x: Tensor) -> None:
    same = Decoder(DecoderLayer(E, H, FF, mask=KeyPadding("m"), memory_mask=KeyPadding("m")), 1).eval()
    two = Decoder(DecoderLayer(E, H, FF, mask=KeyPadding("a"), memory_mask=KeyPadding("b")), 1).eval()
    two.load_state_dict(same.state_dict())
    assert torch.equal(same(x, x, m=RIGHT), two(x, x, a=RIGHT, b=RIGHT))


def test_a_fusion_module_is_not_shared_by_the_two_attentions(x: Tensor) -> None:
    fusion = CrossHeadFusion(E, H, E // H)
    layer = DecoderLayer(E, H, FF, fusion=fusion)
    assert layer.self_attn.fusion is fusion
    assert layer.multihead_attn.fusion.out_proj.weight is not fusion.out_proj.weight
    assert layer(x, x).shape == x.shape


def test_a_full_target_mask_lets_the_fusion_mix_all_queries(x: Tensor, memory: Tensor) -> None:
    layer = DecoderLayer(E, H, FF, mask=Full(), fusion="self_attention").eval()
    dense = Full().dense(S, S, device="cpu")
    torch.testing.assert_close(layer(x, memory), layer(x, memory, attend=dense))


def test_each_distinct_mask_is_made_once(x: Tensor, memory: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    of = attend_module.Attend.of.__func__
    monkeypatch.setattr(
        attend_module.Attend, "of", classmethod(lambda cls, mask, *a, **k: made.append(mask) or of(cls, mask, *a, **k))
    )
    encoder = Encoder(EncoderLayer(E, H, FF, mask=Causal(), fusion="self_attention"), 4)
    encoder(x)
    assert len(made) == 1
    # The same meaning in other words is the same mask, and another meaning is another mask.
    encoder.layers[1].self_attn.mask = Window(-1, 0)
    encoder.layers[2].self_attn.mask = Window(3, 0)
    encoder(x)
    assert len(made) == 3
    Decoder(DecoderLayer(E, H, FF, memory_mask=KeyPadding("m"), fusion="self_attention"), 4)(x, memory, m=MEMORY)
    assert len(made) == 5


def test_layers_with_their_own_masks(x: Tensor) -> None:
    encoder = Encoder(EncoderLayer(E, H, FF, mask=KeyPadding("m")), 2).eval()
    encoder.layers[1].self_attn.mask = Causal() & KeyPadding("n")
    expected = encoder.layers[1](encoder.layers[0](x, m=LEFT), n=RIGHT)
    torch.testing.assert_close(encoder(x, m=LEFT, n=RIGHT), expected)


def test_a_ready_mask_serves_all_layers(x: Tensor) -> None:
    encoder = Encoder(EncoderLayer(E, H, FF, mask=Window(1, 1) & KeyPadding("m")), 2).eval()
    dense = encoder.layers[0].self_attn.mask.dense(S, S, m=LEFT)
    torch.testing.assert_close(encoder(x, attend=dense), encoder(x, m=LEFT))


@pytest.mark.parametrize("fusion", FUSIONS)
def test_gradients_reach_every_parameter_and_are_finite_with_empty_rows(x: Tensor, memory: Tensor, fusion: str) -> None:
    mask, memory_mask = Causal() & KeyPadding("padding"), KeyPadding("memory_padding")
    decoder = Decoder(DecoderLayer(E, H, FF, mask=mask, memory_mask=memory_mask, fusion=fusion), 2, nn.LayerNorm(E))
    decoder(x, memory, padding=LEFT, memory_padding=MEMORY).pow(3).sum().backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad.isfinite().all(), name
        # Adding a vector to all keys adds one number to a query's scores, and softmax doesn't see it.
        assert parameter.grad.any() or name.endswith("k_proj.bias"), name


# Refusals.


def test_a_missing_tensor_is_named(x: Tensor, memory: Tensor) -> None:
    masks = {"mask": Causal() & KeyPadding("padding"), "memory_mask": KeyPadding("memory_padding")}
    for module in (DecoderLayer(E, H, FF, **masks), Decoder(DecoderLayer(E, H, FF, **masks), 2)):
        with pytest.raises(TypeError) as error:
            module(x, memory, padding=RIGHT)
        assert "`causal & padding(padding)` and `padding(memory_padding)`" in str(error.value)
        assert "given: padding ([3, 7])" in str(error.value)
    with pytest.raises(TypeError, match=r"needs m \(bool or int \[B, K\]\); given: none"):
        Encoder(EncoderLayer(E, H, FF, mask=KeyPadding("m")), 2)(x)


@pytest.mark.parametrize(("layer", "name"), [(EncoderLayer, "src"), (DecoderLayer, "memory"), (DecoderLayer, "tgt")])
def test_a_tensor_called_as_a_parameter_is_refused(layer, name: str) -> None:
    with pytest.raises(ValueError, match=f"names the tensor '{name}'"):
        layer(E, H, mask=KeyPadding(name))


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown activation 'swish': give relu or gelu"):
        EncoderLayer(E, H, activation="swish")


# Incremental decoding.


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("norm_first", [False, True])
def test_steps_with_a_cache_equal_the_full_forward(x: Tensor, memory: Tensor, fusion: str, norm_first: bool) -> None:
    masks = {"mask": Window(4, 0) & KeyPadding("padding"), "memory_mask": Window(-1, 3) & KeyPadding("memory_padding")}
    layer = DecoderLayer(E, H, FF, num_kv_heads=2, fusion=fusion, norm_first=norm_first, **masks)
    decoder = Decoder(layer, 2, nn.LayerNorm(E)).eval()
    full = decoder(x, memory, padding=LEFT, memory_padding=MEMORY)
    past, start = None, 0
    for size in (3, 1, 2, 1):
        end = start + size
        output, past = decoder(
            x[:, start:end],
            memory,
            past_key_values=past,
            use_cache=True,
            padding=LEFT[:, :end],
            memory_padding=MEMORY,
        )
        torch.testing.assert_close(output, full[:, start:end])
        start = end


def test_a_cache_of_another_depth_is_refused(x: Tensor, memory: Tensor) -> None:
    _, past = Decoder(DecoderLayer(E, H, FF), 2)(x, memory, use_cache=True)
    with pytest.raises(ValueError, match="past_key_values has 2 tuples"):
        Decoder(DecoderLayer(E, H, FF), 3)(x, memory, past_key_values=past)


# ONNX Runtime.


@pytest.fixture(scope="session", params=[18, 23])
def exported_decoder(request: pytest.FixtureRequest):
    """A decoder in eval mode, and an ONNX Runtime session of it."""
    ort = pytest.importorskip("onnxruntime")
    from maskport.export import export

    torch.manual_seed(0)
    masks = {"mask": Causal() & KeyPadding("padding"), "memory_mask": KeyPadding("memory_padding")}
    decoder = Decoder(DecoderLayer(E, H, FF, num_kv_heads=2, fusion="self_attention", **masks), 2).eval()
    target, source = {0: "batch", 1: "target"}, {0: "batch", 1: "source"}
    example = {
        "tgt": torch.randn(2, 5, E),
        "memory": torch.randn(2, 9, E),
        "padding": torch.ones(2, 5, dtype=torch.int64),
        "memory_padding": torch.ones(2, 9, dtype=torch.int64),
    }
    shapes = {"tgt": target, "memory": source, "padding": target, "memory_padding": source}
    model = export(decoder, example, dynamic_shapes=shapes, opset_version=request.param)
    # Two masks, two guards: not one for each of the eight attentions.
    assert [node.op_type for node in model.model.graph].count("ReduceMax") == 2
    return decoder, ort.InferenceSession(model.serialize(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("padding", [torch.ones_like(LEFT), RIGHT, LEFT], ids=["ones", "right", "left"])
def test_the_exported_decoder_equals_eager(exported_decoder, x: Tensor, memory: Tensor, padding: Tensor) -> None:
    decoder, session = exported_decoder
    # Row 2 has no memory, and the first rows of left padding have no target.
    inputs = {"tgt": x, "memory": memory, "padding": padding, "memory_padding": MEMORY}
    with torch.no_grad():
        expected = decoder(**inputs).numpy()
    (output,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    np.testing.assert_allclose(output, expected, atol=1e-5)
