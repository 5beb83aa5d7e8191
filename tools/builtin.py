"""The built-in models: small reference modules, one for each way in which masks are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..models.masks import Causal, KeyPadding, Mask, Segments, Window

if TYPE_CHECKING:
    from torch import nn

WIDTH, HEADS, HIDDEN, LAYERS = 64, 4, 128, 2
BATCH, SOURCE, TARGET = 2, 9, 7
PADDED = KeyPadding("attention_mask")


@dataclass(frozen=True)
class Builtin:
    """A built-in model.

    Attributes
    ----------
    what
        What it is, in a few words.
    mask
        The mask of its self-attention.
    options
        Arguments of its layers.
    source_mask
        The mask of its encoder and of the attention over the memory, if it is an encoder with a decoder.
    """

    what: str
    mask: Mask
    options: Mapping[str, Any] = field(default_factory=dict)
    source_mask: Mask | None = None

    def build(self) -> tuple[nn.Module, dict[str, Any], dict[str, dict[int, str]]]:
        """Return the module with seeded weights, example inputs and dynamic shapes."""
        import torch

        from ..models import Encoder, EncoderLayer

        torch.manual_seed(0)
        if self.source_mask is not None:
            from .encoder_decoder import EncoderDecoder

            module: nn.Module = EncoderDecoder(WIDTH, HEADS, HIDDEN, LAYERS, self.source_mask, self.mask)
            axes = {"src": (SOURCE, "source"), "tgt": (TARGET, "target")}
            axes |= dict.fromkeys(self.source_mask.tensors, axes["src"])
            axes |= dict.fromkeys(self.mask.tensors, axes["tgt"])
        else:
            layer = EncoderLayer(WIDTH, HEADS, HIDDEN, mask=self.mask, **self.options)
            module = Encoder(layer, LAYERS)
            axes = dict.fromkeys(("src", *self.mask.tensors), (SOURCE, "seq"))
        inputs = {
            name: torch.ones(BATCH, length, dtype=torch.int64)
            if name.endswith(("mask", "ids"))
            else torch.randn(BATCH, length, WIDTH)
            for name, (length, _) in axes.items()
        }
        if "segment_ids" in inputs:
            inputs["segment_ids"] = (torch.arange(SOURCE) // 4).expand(BATCH, -1).clone()
        return module.eval(), inputs, {name: {0: "batch", 1: axis} for name, (_, axis) in axes.items()}


BUILTINS = {
    "encoder": Builtin("encoder over padded batches", PADDED),
    "encoder-windowed": Builtin("encoder whose tokens see their neighbours", Window(3, 3) & PADDED),
    "encoder-packed": Builtin("encoder over several texts in one row", Segments("segment_ids")),
    "fusion-self-attention": Builtin(
        "encoder whose heads are fused by a second attention", PADDED, {"fusion": "self_attention"}
    ),
    "fusion-cross-head": Builtin("encoder whose heads attend each other", PADDED, {"fusion": "cross_head"}),
    "decoder-only": Builtin(
        "causal stack with grouped key/value heads", Causal() & PADDED, {"num_kv_heads": 2, "norm_first": True}
    ),
    "decoder-only-windowed": Builtin(
        "causal stack with a sliding window",
        Window(5, 0) & PADDED,
        {"num_kv_heads": 2, "norm_first": True},
    ),
    "encoder-decoder": Builtin(
        "encoder, and decoder over its memory",
        Causal() & KeyPadding("target_mask"),
        source_mask=KeyPadding("source_mask"),
    ),
}
