"""Attention whose additive mask is trained: the kernel, and the strides of its output, depend on the gradients."""

from __future__ import annotations

import torch
from maskport.export import export
from torch import nn

AXES = {0: "batch", 1: "seq"}


class TrainedBias(nn.Module):
    """Self-attention of two heads with a trained bias, added as T5 adds its relative positions."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([0.0, 1.0]).reshape(1, 2, 1, 1))

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        heads = x.view(*x.shape[:-1], -1, 4).transpose(1, 2)
        bias = torch.where(attention_mask[:, None, None, :] != 0, self.bias, torch.finfo(x.dtype).min)
        bias = bias.expand(-1, -1, x.shape[1], -1)
        attended = nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=bias)
        return attended.transpose(1, 2).contiguous().view(*x.shape[:-1], -1)


def test_attention_with_a_trained_bias_exports_and_keeps_its_gradients() -> None:
    module = TrainedBias().eval()
    inputs = {"x": torch.randn(2, 5, 8), "attention_mask": torch.ones(2, 5, dtype=torch.int64)}
    exported = export(module, inputs, dynamic_shapes=dict.fromkeys(inputs, AXES))
    assert exported.input_names == ["x", "attention_mask"]
    assert module.bias.requires_grad
    assert torch.is_grad_enabled()
