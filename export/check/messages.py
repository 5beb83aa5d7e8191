"""The messages of the check: what is wrong, where, and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence

BAKED = (
    "Take sizes from the tensors where they are used (x.shape[1]); no number, buffer or cache of the example's size."
)
DROPPED = (
    "Use the tensor in tensor operations on every path: no branch on its values, no cache from an earlier call, no "
    "`if torch.compiler.is_exporting()`."
)
UNREAD = "Leave it out of example_inputs, or name it in unused=[...] if callers pass it anyway."
SPECIAL = (
    "PyTorch's exporter follows the branch that the example takes: `if x.shape[0] == 1` or `if x.shape[1] <= 16` is "
    "decided once. Write the code so that it holds for every size."
)
NAN = (
    "Fill, don't add: scores.masked_fill(~mask, torch.finfo(scores.dtype).min), or a bool attn_mask. A row of "
    "-inf alone is NaN, and NaN reaches every row of the next layer."
)
HALF_CONSTANT = "Its constant is too large for the element type and became infinite in the file; 0 * inf is NaN."
MIXED = "If rows are meant to meet, export with mixes_rows=True."
WRONG_AXIS = (
    "takes [seq, batch, width] and attends across the batch if it is given [batch, seq, width]; set batch_first=True"
)


def joined(what: str, *lines: str) -> str:
    """Join the lines of a message, leaving out empty ones; those after the first are indented."""
    return "\n  ".join(line for text in (what, *lines) for line in text.strip().splitlines() if line)


def axes_of(name: str, uses: Sequence[tuple[str, int]]) -> str:
    """Name a free axis and one place where it is: ``'seq' (axis 1 of 'x')``."""
    return f"{name!r} (axis {uses[0][1]} of {uses[0][0]!r})" if uses else repr(name)
