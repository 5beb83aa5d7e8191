"""Packing: attention and what is between runs on the real tokens of a padded batch.

tokens   which tokens are kept, as indices computed in the graph
         host_tokens: as inputs that the caller gives; host_inputs: which these are, and what they are for a mask
packer   values on tokens: computed there, or gathered
rules    which operators commute with picking tokens
points   where a mask is evaluated among picked tokens
rows     attention of packed rows on the CPU
groups   attention of tokens in groups on CUDA: rows, or segments
segments attention within segments, of a model whose tokens are not packed
device   which of these an attention gets on CUDA
exits    what looks across tokens: allowed, or a reason to leave the model as it is
zero     padding rows of outputs, where nothing is packed
pack     all of it
"""

from .pack import Packing, pack, padding_masks
from .segments import group_segments
from .zero import zero_padding

__all__ = ["Packing", "group_segments", "pack", "padding_masks", "zero_padding"]
