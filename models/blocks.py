"""Transformer encoder and decoder, named as in torch.nn, with mask expressions and a choice of head fusion.

All tensors are batch-first. A stack makes each distinct mask dense once per forward and shares it between its layers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attend import Attend, make_attend
from .attention import MaskedMultiHeadAttention, check_names, check_tensors, pick
from .masks import Causal, Full, Mask

__all__ = ["Decoder", "DecoderLayer", "Encoder", "EncoderLayer"]

Activation = Callable[[Tensor], Tensor]
Cache = tuple[Tensor, ...]

_ACTIVATIONS: dict[str, Activation] = {"relu": F.relu, "gelu": F.gelu}


class _Layer(nn.Module):
    """The feed-forward network of a layer, and its residual branches, each with a layer norm and a dropout."""

    def __init__(
        self,
        d_model: int,
        dim_feedforward: int,
        dropout: float,
        activation: str | Activation,
        layer_norm_eps: float,
        norm_first: bool,
        bias: bool,
        branches: int,
        factory: dict[str, Any],
    ) -> None:
        super().__init__()
        if isinstance(activation, str) and activation not in _ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}: give {' or '.join(_ACTIVATIONS)}, or a callable")
        self.activation = _ACTIVATIONS[activation] if isinstance(activation, str) else activation
        self.norm_first = norm_first
        self.linear1 = nn.Linear(d_model, dim_feedforward, bias, **factory)
        self.dropout = nn.Dropout(dropout)
        self.linear2 = nn.Linear(dim_feedforward, d_model, bias, **factory)
        for n in range(1, branches + 1):
            self.add_module(f"norm{n}", nn.LayerNorm(d_model, layer_norm_eps, bias=bias, **factory))
            self.add_module(f"dropout{n}", nn.Dropout(dropout))

    def _branch(self, n: int, x: Tensor, function: Activation) -> Tensor:
        norm, dropout = self.get_submodule(f"norm{n}"), self.get_submodule(f"dropout{n}")
        output: Tensor = x + dropout(function(norm(x))) if self.norm_first else norm(x + dropout(function(x)))
        return output

    def _feed_forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return output


class EncoderLayer(_Layer):
    """Self-attention and a feed-forward network, as `torch.nn.TransformerEncoderLayer`.

    Parameters
    ----------
    d_model, nhead, dim_feedforward : int
        Width of the tokens, number of heads, width of the hidden layer.
    dropout : float
        Share of the attention weights, of the hidden layer and of each residual branch to drop in training.
    activation : "relu", "gelu" or callable
        Of the hidden layer.
    layer_norm_eps : float
        Added to the variance.
    norm_first : bool
        Whether a layer norm stands before each branch (pre-norm) or after its residual sum (post-norm).
    bias : bool
        Whether linear layers and layer norms have a bias.
    mask : Mask
        Which keys a query attends.
    num_kv_heads : int, optional
        Key/value heads, `nhead` by default.
    fusion : str or nn.Module
        How the heads become one embedding; see `MaskedMultiHeadAttention`.

    Examples
    --------
    >>> from maskport.models.masks import KeyPadding
    >>> layer = EncoderLayer(16, 4, 32, mask=KeyPadding("attention_mask"))
    >>> layer(torch.zeros(2, 5, 16), attention_mask=torch.ones(2, 5, dtype=torch.int64)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        *,
        norm_first: bool = False,
        bias: bool = True,
        mask: Mask = Full(),  # noqa: B008 (immutable)
        num_kv_heads: int | None = None,
        fusion: str | nn.Module = "concat",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        factory = {"device": device, "dtype": dtype}
        super().__init__(d_model, dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias, 2, factory)
        check_names(self, mask)
        self.self_attn = MaskedMultiHeadAttention(
            d_model,
            nhead,
            num_kv_heads=num_kv_heads,
            mask=mask,
            bias=bias,
            dropout=dropout,
            fusion=fusion,
            **factory,
        )

    def forward(self, src: Tensor, *, attend: Attend | Tensor | None = None, **mask_tensors: Tensor) -> Tensor:
        """[B, S, d_model] to [B, S, d_model].

        Parameters
        ----------
        src : Tensor
            [B, S, d_model].
        attend : Attend or Tensor, optional
            The mask made dense, in place of the tensors: bool, broadcastable to [B, H, S, S].
        **mask_tensors : Tensor
            The tensors that the mask names.
        """
        x = self._branch(1, src, lambda x: self.self_attn(x, attend=attend, **mask_tensors))
        return self._branch(2, x, self._feed_forward)


class DecoderLayer(_Layer):
    """Self-attention, attention over a memory and a feed-forward network, as
    `torch.nn.TransformerDecoderLayer`.

    Parameters
    ----------
    d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias, num_kv_heads,
    fusion
        As in `EncoderLayer`. A module given as `fusion` serves the self-attention; the attention over the
        memory gets a copy.
    mask : Mask
        Which target positions a target position attends.
    memory_mask : Mask
        Which memory positions a target position attends. A tensor that both masks name feeds both.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        *,
        norm_first: bool = False,
        bias: bool = True,
        mask: Mask = Causal(),  # noqa: B008 (immutable)
        memory_mask: Mask = Full(),  # noqa: B008 (immutable)
        num_kv_heads: int | None = None,
        fusion: str | nn.Module = "concat",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        factory = {"device": device, "dtype": dtype}
        super().__init__(d_model, dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias, 3, factory)
        check_names(self, mask, memory_mask)
        self.self_attn, self.multihead_attn = (
            MaskedMultiHeadAttention(
                d_model,
                nhead,
                num_kv_heads=num_kv_heads,
                mask=m,
                bias=bias,
                dropout=dropout,
                fusion=f,
                **factory,
            )
            for m, f in ((mask, fusion), (memory_mask, copy.deepcopy(fusion)))
        )

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        *,
        past_key_value: Cache | None = None,
        use_cache: bool = False,
        attend: Attend | Tensor | None = None,
        memory_attend: Attend | Tensor | None = None,
        **mask_tensors: Tensor,
    ) -> Tensor | tuple[Tensor, Cache]:
        """[B, S, d_model] to [B, S, d_model].

        Parameters
        ----------
        tgt, memory : Tensor
            [B, S, d_model] and [B, T, d_model].
        past_key_value : tuple of Tensor, optional
            What an earlier call returned: `tgt` continues it, and the memory is not projected again.
        use_cache : bool
            Whether to return the keys and values of both attentions as well.
        attend, memory_attend : Attend or Tensor, optional
            The masks made dense, in place of the tensors: bool, broadcastable to [B, H, S, past + S] and [B,
            H, S, T].
        **mask_tensors : Tensor
            The tensors that the masks name, covering the past positions of the target, too.
        """
        attentions = (self.self_attn, self.multihead_attn)
        check_tensors(
            [a.mask for a, ready in zip(attentions, (attend, memory_attend), strict=True) if ready is None],
            mask_tensors,
        )
        if attend is None:
            attend = _make_attend(self.self_attn.mask, tgt, past_key_value, mask_tensors)
        if memory_attend is None:
            memory_attend = _make_attend(self.multihead_attn.mask, tgt, past_key_value, mask_tensors, memory)
        query_attend = None
        if self.multihead_attn.mixes_positions:
            everything = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=tgt.device)
            query_attend = everything if attend is None else attend
        past, memory_past = None, None
        if past_key_value is not None:
            split = self.self_attn.cache_size
            past, memory_past = past_key_value[:split], past_key_value[split:]
        present: list[Tensor] = []

        def self_attention(x: Tensor) -> Tensor:
            output, cache = self.self_attn(x, attend=attend, past_key_value=past, use_cache=True)
            present.extend(cache)
            return output

        def memory_attention(x: Tensor) -> Tensor:
            output, cache = self.multihead_attn(
                x,
                memory,
                attend=memory_attend,
                query_attend=query_attend,
                past_key_value=memory_past,
                use_cache=True,
            )
            present.extend(cache)
            return output

        x = self._branch(1, tgt, self_attention)
        x = self._branch(2, x, memory_attention)
        x = self._branch(3, x, self._feed_forward)
        return (x, tuple(present)) if use_cache else x


class Encoder(nn.Module):
    """A stack of N copies of a layer, as `torch.nn.TransformerEncoder`.

    Parameters
    ----------
    encoder_layer : EncoderLayer
        The layer to copy.
    num_layers : int
        N.
    norm : nn.Module, optional
        Applied to the result.
    """

    def __init__(self, encoder_layer: EncoderLayer, num_layers: int, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.norm = norm

    def forward(self, src: Tensor, *, attend: Attend | Tensor | None = None, **mask_tensors: Tensor) -> Tensor:
        """[B, S, d_model] to [B, S, d_model]; the arguments are those of `EncoderLayer.forward`."""
        layers = cast("Sequence[EncoderLayer]", self.layers)
        check_tensors([layer.self_attn.mask for layer in layers] if attend is None else [], mask_tensors)
        if isinstance(attend, Tensor):
            attend = Attend.of(attend, src.shape[1], src.shape[1])
        attends = _AttendOnce(src, None, mask_tensors)
        x = src
        for layer in layers:
            x = layer(x, attend=attends[layer.self_attn.mask] if attend is None else attend)
        return x if self.norm is None else self.norm(x)


class Decoder(nn.Module):
    """A stack of N copies of a layer, as `torch.nn.TransformerDecoder`.

    Parameters
    ----------
    decoder_layer : DecoderLayer
        The layer to copy.
    num_layers : int
        N.
    norm : nn.Module, optional
        Applied to the result.
    """

    def __init__(self, decoder_layer: DecoderLayer, num_layers: int, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        *,
        past_key_values: Sequence[Cache] | None = None,
        use_cache: bool = False,
        **mask_tensors: Tensor,
    ) -> Tensor | tuple[Tensor, tuple[Cache, ...]]:
        """[B, S, d_model] to [B, S, d_model].

        Parameters
        ----------
        tgt, memory : Tensor
            [B, S, d_model] and [B, T, d_model].
        past_key_values : sequence of tuples of Tensor, optional
            What an earlier call returned, one tuple for each layer: `tgt` continues it.
        use_cache : bool
            Whether to return the keys and values as well.
        **mask_tensors : Tensor
            The tensors that the masks name, covering the past positions of the target, too.
        """
        layers = cast("Sequence[DecoderLayer]", self.layers)
        pasts = [None] * len(layers) if past_key_values is None else past_key_values
        if len(pasts) != len(layers):
            raise ValueError(
                f"past_key_values has {len(pasts)} tuples, one for each layer, but there are {len(layers)} layers"
            )
        check_tensors([a.mask for layer in layers for a in (layer.self_attn, layer.multihead_attn)], mask_tensors)
        past = None if past_key_values is None else past_key_values[0]
        attends, memory_attends = (_AttendOnce(tgt, past, mask_tensors, over) for over in (None, memory))
        x, presents = tgt, []
        for layer, past in zip(layers, pasts, strict=True):
            x, present = layer(
                x,
                memory,
                past_key_value=past,
                use_cache=True,
                attend=attends[layer.self_attn.mask],
                memory_attend=memory_attends[layer.multihead_attn.mask],
            )
            presents.append(present)
        x = x if self.norm is None else self.norm(x)
        return (x, tuple(presents)) if use_cache else x


def _make_attend(
    mask: Mask, query: Tensor, past: Cache | None, tensors: Mapping[str, Tensor], memory: Tensor | None = None
) -> Attend | None:
    """The mask over the memory if there is one, else over the past and the queries themselves."""
    q_len, past_len = query.shape[1], 0 if past is None else past[0].shape[2]
    return make_attend(
        mask,
        q_len,
        past_len + q_len if memory is None else memory.shape[1],
        past_len,
        cross=memory is not None,
        device=query.device,
        tensors=pick(mask, tensors),
    )


class _AttendOnce(dict[Mask, Attend | None]):
    """Masks made dense when they are first asked for."""

    def __init__(
        self, query: Tensor, past: Cache | None, tensors: Mapping[str, Tensor], memory: Tensor | None = None
    ) -> None:
        super().__init__()
        self._of = (query, past, tensors, memory)

    def __missing__(self, mask: Mask) -> Attend | None:
        self[mask] = _make_attend(mask, *self._of)
        return self[mask]
