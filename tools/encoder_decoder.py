"""An encoder and a decoder over its memory, as one module."""

from __future__ import annotations

from torch import Tensor, nn

from ..models import Decoder, DecoderLayer, Encoder, EncoderLayer
from ..models.masks import Mask


class EncoderDecoder(nn.Module):
    """An encoder over the source, and a decoder that reads its result.

    Parameters
    ----------
    d_model, nhead, dim_feedforward, num_layers
        Of both stacks.
    source_mask
        Mask of the encoder, and of the decoder's attention over the memory.
    target_mask
        Mask of the decoder's self-attention.
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int, num_layers: int, source_mask: Mask, target_mask: Mask
    ) -> None:
        super().__init__()
        self.encoder = Encoder(EncoderLayer(d_model, nhead, dim_feedforward, mask=source_mask), num_layers)
        layer = DecoderLayer(d_model, nhead, dim_feedforward, mask=target_mask, memory_mask=source_mask)
        self.decoder = Decoder(layer, num_layers)
        self._source = tuple(source_mask.tensors)

    def forward(self, src: Tensor, tgt: Tensor, **mask_tensors: Tensor) -> Tensor:
        """[B, S, d_model] and [B, T, d_model] to [B, T, d_model].

        Parameters
        ----------
        src, tgt : Tensor
            [B, S, d_model] and [B, T, d_model].
        **mask_tensors : Tensor
            The tensors that the masks name.
        """
        memory = self.encoder(src, **{name: mask_tensors[name] for name in self._source})
        output: Tensor = self.decoder(tgt, memory, **mask_tensors)
        return output
