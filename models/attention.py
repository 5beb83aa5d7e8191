"""Multi-head attention whose mask is an expression, with its tensors passed by name."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .attend import Attend, make_attend, scaled_dot_product_attention
from .fusion import FUSIONS, split_heads
from .masks import Full, Mask

__all__ = ["MaskedMultiHeadAttention", "check_names", "check_tensors", "pick"]


def check_names(module: nn.Module, *masks: Mask) -> None:
    """Refuse masks whose tensors have the names of parameters of the module's `forward`.

    Raises
    ------
    ValueError
        If a tensor could not be passed by its name.
    """
    taken = inspect.signature(type(module).forward).parameters
    for mask in masks:
        if clash := [name for name in mask.tensors if name in taken]:
            raise ValueError(
                f"the mask `{mask}` names the tensor {clash[0]!r}, and so is a parameter of "
                f"{type(module).__name__}.forward called; give the tensor another name"
            )


def check_tensors(masks: Iterable[Mask], given: Mapping[str, Tensor]) -> None:
    """Check that the tensors that the masks name are given, and no others.

    Raises
    ------
    TypeError
        If one is missing or unknown.
    """
    masks = tuple(dict.fromkeys(masks))
    needed = {name: spec for mask in masks for name, spec in mask.tensors.items()}
    if needed.keys() == given.keys():
        return
    what = " and ".join(f"`{mask}`" for mask in masks)
    needs = ", ".join(f"{name} ({spec.shape})" for name, spec in needed.items()) or "no tensor"
    got = ", ".join(f"{name} ({list(tensor.shape)})" for name, tensor in given.items()) or "none"
    raise TypeError(
        f"{f'the mask {what}' if masks else 'a mask given as attend'} needs {needs}; given: {got}. "
        "Pass each by its name, and no other"
    )


def pick(mask: Mask, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors that a mask names."""
    return {name: tensors[name] for name in mask.tensors}


class MaskedMultiHeadAttention(nn.Module):
    """Multi-head attention over batch-first tensors [B, S, E], with a mask expression and a choice of head fusion.

    With `mask=Full()` and the default fusion it computes what `torch.nn.MultiheadAttention` does;
    `from_torch` takes over its weights.

    Parameters
    ----------
    embed_dim : int
        E, the width of queries and output.
    num_heads : int
        H.
    num_kv_heads : int, optional
        G, key/value heads, a divisor of H; H by default. Each serves H // G query heads (Ainslie et al.
        2023).
    mask : Mask
        Which keys a query attends. Its tensors are passed to `forward` by their names.
    bias : bool
        Whether the linear layers have a bias.
    dropout : float
        Share of the weights to drop in training. A fusion that attends has its own, 0 unless given as a module.
    kdim, vdim : int, optional
        Widths of keys and values, E by default.
    head_dim : int, optional
        D, the width of a head, E // H by default.
    scale : float, optional
        Factor of the scores, 1 / sqrt(D) by default.
    softcap : float
        If not 0, scores become `softcap * tanh(scores / softcap)`.
    fusion : str or nn.Module
        How the heads become one embedding: "concat", "self_attention", "cross_head", or a module that takes
        the heads [B, H, S, D] and returns [B, S, E].

    Raises
    ------
    ValueError
        If the sizes don't divide, the fusion is unknown, or a tensor of the mask has the name of a parameter
        of `forward`.

    Examples
    --------
    >>> from maskport.models.masks import Causal, KeyPadding
    >>> attention = MaskedMultiHeadAttention(16, 4, mask=Causal() & KeyPadding("attention_mask"))
    >>> attention(torch.zeros(2, 5, 16), attention_mask=torch.ones(2, 5, dtype=torch.int64)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        mask: Mask = Full(),  # noqa: B008 (immutable)
        bias: bool = True,
        dropout: float = 0.0,
        kdim: int | None = None,
        vdim: int | None = None,
        head_dim: int | None = None,
        scale: float | None = None,
        softcap: float = 0.0,
        fusion: str | nn.Module = "concat",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if head_dim is None and embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} is no multiple of num_heads {num_heads}: give head_dim")
        if num_heads % num_kv_heads:
            raise ValueError(f"num_kv_heads {num_kv_heads} is no divisor of num_heads {num_heads}")
        if isinstance(fusion, str) and fusion not in FUSIONS:
            raise ValueError(f"unknown fusion {fusion!r}: give one of {', '.join(FUSIONS)}, or a module")
        head_dim = embed_dim // num_heads if head_dim is None else head_dim
        check_names(self, mask)
        self.num_heads, self.num_kv_heads, self.mask = num_heads, num_kv_heads, mask
        self.dropout, self.scale, self.softcap = dropout, scale, softcap

        factory = {"device": device, "dtype": dtype}
        self.q_proj = nn.Linear(embed_dim, num_heads * head_dim, bias, **factory)
        self.k_proj = nn.Linear(kdim or embed_dim, num_kv_heads * head_dim, bias, **factory)
        self.v_proj = nn.Linear(vdim or embed_dim, num_kv_heads * head_dim, bias, **factory)
        self.fusion = (
            FUSIONS[fusion](embed_dim, num_heads, head_dim, bias, **factory) if isinstance(fusion, str) else fusion
        )

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention, *, mask: Mask = Full()) -> MaskedMultiHeadAttention:  # noqa: B008
        """Take over the weights of a `torch.nn.MultiheadAttention`; the result is batch-first, whatever that was.

        Raises
        ------
        ValueError
            If it adds keys of its own (`add_bias_kv`, `add_zero_attn`): no mask expression says what they
            mean.
        """
        theirs = module.state_dict()
        if "bias_k" in theirs or module.add_zero_attn:
            raise ValueError("add_bias_kv and add_zero_attn add keys that have no position; leave them out")
        packed = "in_proj_weight" in theirs
        weights = theirs["in_proj_weight"].chunk(3) if packed else [theirs[f"{x}_proj_weight"] for x in "qkv"]
        state = {f"{x}_proj.weight": weight for x, weight in zip("qkv", weights, strict=True)}
        if "in_proj_bias" in theirs:
            biases = theirs["in_proj_bias"].chunk(3)
            state |= {f"{x}_proj.bias": bias for x, bias in zip("qkv", biases, strict=True)}
        state |= {f"fusion.{name}": tensor for name, tensor in theirs.items() if name.startswith("out_proj.")}
        ours = cls(
            module.embed_dim,
            module.num_heads,
            mask=mask,
            bias="in_proj_bias" in theirs,
            dropout=module.dropout,
            kdim=module.kdim,
            vdim=module.vdim,
            device=weights[0].device,
            dtype=weights[0].dtype,
        )
        ours.load_state_dict(state)
        return ours.train(module.training)

    @property
    def mixes_positions(self) -> bool:
        """Whether the fusion attends over positions, and has keys and values of its own to cache."""
        return getattr(self.fusion, "mixes_positions", False)

    @property
    def cache_size(self) -> int:
        """How many tensors `past_key_value` holds."""
        return 4 if self.mixes_positions else 2

    def extra_repr(self) -> str:
        """What `print(module)` shows of it."""
        return f"num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, mask={self.mask}"

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        past_key_value: tuple[Tensor, ...] | None = None,
        use_cache: bool = False,
        need_weights: bool = False,
        need_heads: bool = False,
        attend: Attend | Tensor | None = None,
        query_attend: Attend | Tensor | None = None,
        **mask_tensors: Tensor,
    ) -> Any:
        """Attend.

        Parameters
        ----------
        query : Tensor
            [B, S, E].
        key, value : Tensor, optional
            [B, T, kdim] and [B, T, vdim]. Without `key` it is self-attention; `value` is `key` by default.
        past_key_value : tuple of Tensor, optional
            What an earlier call returned. In self-attention its keys come before those of `query`, and the
            mask's tensors cover all of them; in cross-attention it holds the projected memory, and `key` is
            not projected again.
        use_cache : bool
            Whether to return the keys and values.
        need_weights : bool
            Whether to return the weights.
        need_heads : bool
            Whether to return each head's output.
        attend : Attend or Tensor, optional
            The mask made dense, in place of the tensors: bool, broadcastable to [B, H, S, past + T].
        query_attend : Attend or Tensor, optional
            The mask between the query positions, bool, broadcastable to [B, H, S, past + S]. Cross-attention
            with a fusion that mixes positions needs it: there the mask is between queries and memory, and
            doesn't say which queries may read each other.
        **mask_tensors : Tensor
            The tensors that the mask names.

        Returns
        -------
        Tensor or tuple
            The output [B, S, E]; a tuple if more was asked for, with, in this order, the weights [B, H, S,
            past + T] before dropout, the heads (a list of H tensors [B, S, D]), the keys and values (a tuple
            of two tensors [B, G, past + T, D], and of two more [B, H, past + S, D] if the fusion mixes
            positions).

        Raises
        ------
        TypeError
            If the tensors are not those that the mask names.
        ValueError
            If cross-attention lacks what it needs to stay masked.
        """
        if key is None and value is not None:
            raise ValueError("value was given without key: give both for cross-attention, or neither")
        check_tensors([self.mask] if attend is None else [], mask_tensors)
        cross = key is not None
        q = split_heads(self.q_proj(query), self.num_heads)
        if key is not None and past_key_value is not None:
            k, v = past_key_value[:2]
            if key.shape[1] != k.shape[2]:
                raise ValueError(
                    f"key has {key.shape[1]} positions, but past_key_value holds {k.shape[2]} of the memory; give "
                    "the memory that the cache was made from"
                )
        else:
            source = query if key is None else key
            k = split_heads(self.k_proj(source), self.num_kv_heads)
            v = split_heads(self.v_proj(source if value is None else value), self.num_kv_heads)
            if past_key_value is not None:
                k, v = torch.cat((past_key_value[0], k), 2), torch.cat((past_key_value[1], v), 2)

        q_len, k_len = q.shape[2], k.shape[2]
        if isinstance(attend, Tensor):
            attend = Attend.of(attend, q_len, k_len)
        elif attend is None:
            past = 0 if cross else k_len - q_len
            attend = make_attend(self.mask, q_len, k_len, past, cross=cross, device=query.device, tensors=mask_tensors)
            if attend is not None and cross and past_key_value is not None:
                raise ValueError(
                    "the cache of a cross-attention doesn't say where the queries stand, so the mask "
                    f"`{self.mask}` can't be made here; give attend"
                )
        fuses_queries = cross and self.mixes_positions
        if fuses_queries and query_attend is None:
            raise ValueError(
                f"{type(self.fusion).__name__} mixes query positions, and the mask `{self.mask}` of a cross-attention "
                "doesn't say which of them may read each other; give query_attend, the mask of the queries' own "
                "self-attention"
            )
        if query_attend is not None and not fuses_queries:
            raise ValueError(
                "query_attend is for cross-attention with a fusion that mixes query positions; leave it out"
            )
        heads, weights = scaled_dot_product_attention(
            q,
            k,
            v,
            attend,
            scale=self.scale,
            softcap=self.softcap,
            dropout_p=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        present: tuple[Tensor, ...] = (k, v)
        if self.mixes_positions:
            fusion_past = None if past_key_value is None else past_key_value[2:]
            output, fusion_present = self.fusion(
                heads, query_attend if cross else attend, past_key_value=fusion_past, use_cache=True
            )
            present += fusion_present
        else:
            output = self.fusion(heads)
        asked = (
            *([weights] if need_weights else []),
            *([list(heads.unbind(1))] if need_heads else []),
            *([present] if use_cache else []),
        )
        return (output, *asked) if asked else output
