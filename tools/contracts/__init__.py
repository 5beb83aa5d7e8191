"""What a file promises without a reference: its masks keep tokens from rows, and nothing else does.

run              the order of it all
subject, claim   the file, and what is promised of each attention: which tokens its queries may attend
reach, tokens    which tokens a row may depend on through all layers; other tokens, and which rows move
token_contracts  padding, causality, windows, segments, and that every token matters
edges            that windows reach as far as they should
batch, prefix    rows alone and in a batch; short sequences and long ones
inputs, lengths  every mask has an effect; sizes that are declared free are
baked            at which sizes a file runs that fails at others
repeatable       that two runs on the same inputs are the same
weights          no weight is NaN
empty_rows       what rows without keys give
expected         the masks that were read, and the declared one
finding, noise   what was found, and what rounding may change
compared_ids     ids that are part of a mask, and are left where they are
"""

from __future__ import annotations

from .run import contracts_of

__all__ = ["contracts_of"]
