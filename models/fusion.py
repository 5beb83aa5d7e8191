"""How the H heads of an attention become one embedding.

Each fusion takes the heads [B, H, S, V] and returns [B, S, E]; Z = H * V is the width of the concatenated heads.
One that mixes positions says so by `mixes_positions`, and is then called as `SelfAttentionFusion` is, with the mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .attend import Attend, scaled_dot_product_attention

__all__ = [
    "FUSIONS",
    "ConcatFusion",
    "CrossHeadFusion",
    "SelfAttentionFusion",
    "merge_heads",
    "split_heads",
    "stack_heads",
]


def split_heads(x_BSZ: Tensor, num_heads: int) -> Tensor:
    """[B, S, H * D] to [B, H, S, D]."""
    return x_BSZ.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def merge_heads(x_BHSD: Tensor) -> Tensor:
    """[B, H, S, D] to [B, S, H * D]."""
    return x_BHSD.transpose(1, 2).flatten(2)


def stack_heads(heads: Tensor | Sequence[Tensor]) -> Tensor:
    """[B, H, S, V], also from a list of H tensors [B, S, V], as `need_heads` returns."""
    return heads if isinstance(heads, Tensor) else torch.stack(tuple(heads), 1)


class ConcatFusion(nn.Module):
    """Concatenate the heads, then one linear layer (Vaswani et al. 2017, 3.2.2): the light one.

    Parameters
    ----------
    embed_dim, num_heads, head_dim : int
        E, H and V. H * V need not equal E.
    bias : bool
        Whether the linear layer has a bias.
    """

    mixes_positions = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        head_dim: int,
        bias: bool = True,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.out_proj = nn.Linear(num_heads * head_dim, embed_dim, bias, device=device, dtype=dtype)

    def forward(self, heads_BHSV: Tensor | Sequence[Tensor]) -> Tensor:
        """[B, H, S, V], or a list of H tensors [B, S, V], to [B, S, E]."""
        output: Tensor = self.out_proj(merge_heads(stack_heads(heads_BHSV)))
        return output


class _AttentionFusion(nn.Module):
    """What fusions by a second attention have: its projections, over positions or over heads, and what follows it."""

    mixes_positions: bool

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        head_dim: int,
        bias: bool = True,
        *,
        dropout: float = 0.0,
        layer_norm_eps: float = 1e-5,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        width = num_heads * head_dim
        attended = width if self.mixes_positions else head_dim
        self.num_heads, self.dropout = num_heads, dropout
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(attended, attended, bias, device=device, dtype=dtype) for _ in range(3)
        )
        self.norm = nn.LayerNorm(width, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.out_proj = nn.Linear(width, embed_dim, bias, device=device, dtype=dtype)


class SelfAttentionFusion(_AttentionFusion):
    """A second self-attention over the concatenated heads, residual, layer norm, then a linear layer to E.

    It carries the first attention's mask. Without it, a valid row reads padding and the future through the
    second attention, whatever the first one masked. Masks that are closed under repetition (causal, padding,
    chunks, segments) mean what they meant; a window reaches twice as far, as it does in two layers.

    Parameters
    ----------
    embed_dim, num_heads, head_dim : int
        E, H and V. The second attention has H heads of V, too, so that a mask with a head axis fits it.
    bias : bool
        Whether the linear layers and the layer norm have a bias.
    dropout : float
        Share of the second attention's weights to drop in training.
    layer_norm_eps : float
        Added to the variance.
    """

    mixes_positions = True

    def forward(
        self,
        heads_BHSV: Tensor | Sequence[Tensor],
        attend: Attend | Tensor | None = None,
        *,
        past_key_value: tuple[Tensor, ...] | None = None,
        use_cache: bool = False,
    ) -> Tensor | tuple[Tensor, tuple[Tensor, ...]]:
        """[B, H, S, V] to [B, S, E].

        Parameters
        ----------
        heads_BHSV : Tensor or sequence of Tensor
            The heads' outputs, [B, H, S, V] or H tensors [B, S, V].
        attend : Attend or Tensor, optional
            The mask between the positions, [B, H, S, past + S]. None lets each position attend every other.
        past_key_value : tuple of two Tensors, optional
            Keys and values of earlier positions, [B, H, past, V] each.
        use_cache : bool
            Whether to return the keys and values as well, [B, H, past + S, V] each.
        """
        x_BSZ = merge_heads(stack_heads(heads_BHSV))
        query, key, value = (
            split_heads(project(x_BSZ), self.num_heads) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        if past_key_value is not None:
            key, value = (torch.cat(pair, 2) for pair in zip(past_key_value, (key, value), strict=True))
        mixed, _ = scaled_dot_product_attention(
            query, key, value, attend, dropout_p=self.dropout if self.training else 0.0
        )
        output = self.out_proj(self.norm(x_BSZ + merge_heads(mixed)))
        return (output, (key, value)) if use_cache else output


class CrossHeadFusion(_AttentionFusion):
    """Each token attends over its own H heads, residual, layer norm, then a linear layer to E.

    Heads can correct each other, and positions never mix: it needs no mask and no cache.

    Parameters
    ----------
    embed_dim, num_heads, head_dim : int
        E, H and V.
    bias : bool
        Whether the linear layers and the layer norm have a bias.
    dropout : float
        Share of the weights between heads to drop in training.
    layer_norm_eps : float
        Added to the variance.
    """

    mixes_positions = False

    def forward(self, heads_BHSV: Tensor | Sequence[Tensor]) -> Tensor:
        """[B, H, S, V], or a list of H tensors [B, S, V], to [B, S, E]."""
        # A token's heads are the sequence here, so tokens stand where attention has its heads.
        x_BSHV = stack_heads(heads_BHSV).transpose(1, 2)
        mixed, _ = scaled_dot_product_attention(
            self.q_proj(x_BSHV),
            self.k_proj(x_BSHV),
            self.v_proj(x_BSHV),
            dropout_p=self.dropout if self.training else 0.0,
        )
        output: Tensor = self.out_proj(self.norm((x_BSHV + mixed).flatten(2)))
        return output


FUSIONS: dict[str, type[ConcatFusion | SelfAttentionFusion | CrossHeadFusion]] = {
    "concat": ConcatFusion,
    "self_attention": SelfAttentionFusion,
    "cross_head": CrossHeadFusion,
}
