"""Masks, attention, head fusion and transformer blocks in plain PyTorch.

    masks         the algebra: a mask is a predicate attend(b, h, q, k), joined by & | ~
    mask_*        its parts: leaves and their readings as arrays, ONNX, text and logic
    mask_helpers  mask tensors from token ids, lengths, edges and other conventions
    attend        applies a mask safely: rows without keys give zero
    attention     multi-head attention that takes a mask expression
    fusion        how heads become one embedding
    blocks        encoder and decoder layers, encoder, decoder

The masks need numpy alone; torch is imported when a module is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .mask_helpers import (
    attend_from_additive,
    attend_from_key_padding_mask,
    attend_from_masked,
    graph_mask,
    local_mask,
    look_ahead_mask,
    padding_mask_from_ids,
    padding_mask_from_lengths,
)
from .masks import (
    Adjacency,
    Affine,
    Causal,
    Chunked,
    Dense,
    Full,
    K,
    KeyPadding,
    Mask,
    Prefix,
    Q,
    QueryPadding,
    Row,
    Segments,
    TensorSpec,
    Window,
    Witness,
    past,
)

if TYPE_CHECKING:
    from .attention import MaskedMultiHeadAttention
    from .blocks import Decoder, DecoderLayer, Encoder, EncoderLayer
    from .fusion import ConcatFusion, CrossHeadFusion, SelfAttentionFusion

# What needs torch, by the file that holds it.
_MODULES = {
    "MaskedMultiHeadAttention": "attention",
    "ConcatFusion": "fusion",
    "CrossHeadFusion": "fusion",
    "SelfAttentionFusion": "fusion",
    "Decoder": "blocks",
    "DecoderLayer": "blocks",
    "Encoder": "blocks",
    "EncoderLayer": "blocks",
}

__all__ = [
    "Adjacency",
    "Affine",
    "Causal",
    "Chunked",
    "ConcatFusion",
    "CrossHeadFusion",
    "Decoder",
    "DecoderLayer",
    "Dense",
    "Encoder",
    "EncoderLayer",
    "Full",
    "K",
    "KeyPadding",
    "Mask",
    "MaskedMultiHeadAttention",
    "Prefix",
    "Q",
    "QueryPadding",
    "Row",
    "Segments",
    "SelfAttentionFusion",
    "TensorSpec",
    "Window",
    "Witness",
    "attend_from_additive",
    "attend_from_key_padding_mask",
    "attend_from_masked",
    "graph_mask",
    "local_mask",
    "look_ahead_mask",
    "padding_mask_from_ids",
    "padding_mask_from_lengths",
    "past",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
