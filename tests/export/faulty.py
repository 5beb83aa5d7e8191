"""Small modules whose export is wrong, each by one fault, and that PyTorch exports without a word."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from maskport.models.masks import Window
from torch import Tensor, nn
from torch.compiler import is_exporting


def attention(x: Tensor, attend: Tensor | None) -> Tensor:
    scores = x @ x.mT
    if attend is not None:
        scores = scores.masked_fill(~attend, -1e9)
    return scores.softmax(-1) @ x


class SqueezesOneRow(nn.Module):
    """FIELD: a size of one is another branch, and the example's is larger."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            return x.sum(-1)
        return x * 2


class WindowForLongInputs(nn.Module):
    """What it does changes beyond a length that is far from the example's."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] <= 100:
            return x * 2
        return x * 3


class BakedLength(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        length = 5 if is_exporting() else x.shape[1]
        return x[:, torch.arange(length)] * 2


class BakedBatch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        rows = 2 if is_exporting() else x.shape[0]
        return x[torch.arange(rows)] * 2


class BakedShape(nn.Module):
    """As the one before, but ONNX Runtime finds nothing to complain of."""

    def forward(self, x: Tensor) -> Tensor:
        length = 5 if is_exporting() else x.shape[1]
        return x[:, torch.arange(length).clamp(max=x.shape[1] - 1)]


class DropsMask(nn.Module):
    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        return attention(x, None if is_exporting() else attention_mask[:, None, :] != 0)


class DropsMaskOfCausal(nn.Module):
    """Right padding and full batches don't show it: a causal row never sees what is to its right."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        keep = attention_mask[:, None, :] != 0
        # The shape of the mask is still read, and a node of the file has it as its input.
        keep = torch.ones_like(keep) if is_exporting() else keep
        return attention(x, causal & keep)


class IgnoresMask(nn.Module):
    """The mask is read, and nothing comes of it; the module is as wrong as the file."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        return attention(x, None) + 0 * attention_mask[..., None]


class NeverReads(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * 2


class LosesWindow(nn.Module):
    """The window is longer than what anyone tries."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = Window(60, 60)

    def forward(self, x: Tensor) -> Tensor:
        return attention(x, None if is_exporting() else self.mask.dense(x.shape[1], x.shape[1], device=x.device)[:, 0])


class OtherValue(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * (2.0 if is_exporting() else 2.01)


class OtherType(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.double() if is_exporting() else x * 1


class InvertedMask(nn.Module):
    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        keep = attention_mask[:, None, :] != 0
        return attention(x, keep.logical_not() if is_exporting() else keep)


class Textbook(nn.Module):
    """S + M * -1e9: in half the file's constant is -inf, and 0 * -inf is NaN."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        padding = (attention_mask == 0).to(x.dtype)
        scores = x @ x.mT
        scores = scores + padding[:, None, :] * -1e9
        return scores.softmax(-1) @ x


class InfiniteMaskTwice(nn.Module):
    """Two layers: a row without keys is NaN in the file's first, and reaches every row in its second."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        attend = causal & (attention_mask[:, None, :] != 0)
        additive = torch.zeros_like(attend, dtype=x.dtype).masked_fill(~attend, -torch.inf)
        heads = x[:, None]
        for _ in range(2):
            heads = F.scaled_dot_product_attention(heads, heads, heads, attn_mask=additive[:, None])
        return heads[:, 0]


class OverTheBatch(nn.Module):
    """nn.MultiheadAttention is given [batch, seq, width], and takes the batch for the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]
