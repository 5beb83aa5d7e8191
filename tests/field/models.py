"""Small modules as people write them, each with one fault that PyTorch exports without a word."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from maskport.export.tracing.module_state import no_fast_path
from maskport.export.tracing.quiet import collected
from torch import Tensor, nn

WIDTH, BATCH, LENGTH = 4, 2, 5
AXES = {0: "batch", 1: "seq"}


def attend(x: Tensor, keep: Tensor | None) -> Tensor:
    """Attend as a textbook has it."""
    scores = x @ x.transpose(1, 2)
    if keep is not None:
        scores = scores.masked_fill(~keep, -1e9)
    return scores.softmax(-1) @ x


class SkipsFullMask(nn.Module):
    """Saves the work where nothing is padding, as Hugging Face did for years."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        keep = None if bool(attention_mask.all()) else attention_mask[:, None, :] != 0
        return attend(x, keep)


class CachedCausal(nn.Module):
    """Keeps its causal mask from one call to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.causal: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.causal is None or len(self.causal) != x.shape[1]:
            self.causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return attend(x, self.causal)


class SelfAttention(nn.Module):
    """PyTorch's own attention over [batch, seq, width]; the first axis is the batch only if it is told so."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class CausalPadded(nn.Module):
    """Causal attention under padding: a row that is padded on the left has no key."""

    def __init__(self, fill: float | None) -> None:
        super().__init__()
        self.fill = fill

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        keep = (causal & (attention_mask[:, None, :] != 0))[:, None]
        if self.fill is not None:
            keep = torch.zeros_like(keep, dtype=x.dtype).masked_fill(~keep, self.fill)
        heads = x[:, None]
        for _ in range(2):
            heads = F.scaled_dot_product_attention(heads, heads, heads, attn_mask=keep)
        return heads[:, 0]


class Textbook(nn.Module):
    """S + M * -1e9."""

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        padding = (attention_mask == 0).to(x.dtype)
        scores = x @ x.transpose(1, 2) + padding[:, None, :] * -1e9
        return scores.softmax(-1) @ x


class Windowed(nn.Module):
    """Sees its nearest tokens; `window` None is the same without that."""

    def __init__(self, window: int | None) -> None:
        super().__init__()
        self.window = window

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1])
        near = (places[:, None] - places[None]).abs() <= (self.window or x.shape[1])
        return attend(x, near)


def example(module: nn.Module, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Return what a module takes, without padding."""
    values = {
        "x": torch.randn(BATCH, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0)).to(dtype),
        "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.int64),
    }
    code = type(module).forward.__code__
    return {name: values[name] for name in code.co_varnames[1 : code.co_argcount]}


def by_torch(module: nn.Module, inputs: Mapping[str, Tensor], *, tracer: bool = False, opset: int = 18) -> bytes:
    """Return the file of torch.onnx.export, or of its old tracer, as it is."""
    given = dict(inputs)
    axes = dict.fromkeys(given, AXES)
    made: Any = io.BytesIO()
    # The fused inference path of nn.MultiheadAttention has no form in ONNX.
    with torch.no_grad(), no_fast_path(), collected():
        if tracer:
            torch.onnx.export(
                module.eval(),
                tuple(given.values()),
                made,
                dynamo=False,
                opset_version=opset,
                input_names=list(given),
                output_names=["output"],
                dynamic_axes=axes | {"output": AXES},
            )
        else:
            program = torch.onnx.export(
                module.eval(),
                kwargs=given,
                dynamo=True,
                verbose=False,
                opset_version=opset,
                output_names=["output"],
                dynamic_shapes=axes,
            )
            assert program is not None
            program.save(made)
    return made.getvalue()
