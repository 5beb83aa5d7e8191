"""What a file claims of an attention, beside what its graph was read to do."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Collection
from dataclasses import dataclass

import onnx_ir as ir

from ..models.mask_leaves import leaves_of
from ..models.masks import Causal, Mask
from .check.checked import ASSUMES_KEY
from .report import CLAIMED, SiteReport
from .sites_metadata import ClaimedSite

__all__ = ["CHANGED", "Contradiction", "Likeness", "beside", "longest_of"]

CHANGED = "the file claims the mask `{mask}` for it, and is not believed: it was changed after it had been checked"
# Masks that change no valid row: those of queries, and those of keys where queries see no later key.
QUERIES, KEYS_AND_QUERIES = ("query_padding",), ("query_padding", "padding")


@dataclass(frozen=True)
class Likeness:
    """The graph doesn't say all that is claimed: why it may be so all the same, and whether that is shown."""

    note: str
    shown: bool


@dataclass(frozen=True)
class Contradiction:
    """The graph was read, and doesn't do what the file claims."""

    why: str


def beside(
    read: SiteReport, claim: ClaimedSite, inputs: Collection[str], longest: int | None
) -> Likeness | Contradiction | None:
    """Compare an attention that was read with what the file claims of it.

    Parameters
    ----------
    read, claim
        The two.
    inputs
        Names of the graph's inputs: a mask of other tensors can't be compared.
    longest
        The longest sequence that the file takes, if there is one.

    Returns
    -------
    None
        The graph does what is claimed.
    Likeness
        The claim can't be read back as a whole: why it stays one.
    Contradiction
        The graph does something else.
    """
    if read.mask == claim.mask:
        return None
    told = f"{CLAIMED}; its graph masks `{read.mask}`"
    if not set(read.mask.tensors) <= set(inputs) or (read.head_size, read.q_heads) != (claim.head_size, claim.q_heads):
        # Of packed rows, of lengths that were counted, of a mask that became a channel of the keys.
        return Likeness(told, shown=False)
    may_go = KEYS_AND_QUERIES if read.mask.implies(Causal()) else QUERIES
    hidden = [leaf for leaf in claim.mask.leaves if next(leaves_of(leaf._expr))[0] in may_go]
    if functools.reduce(operator.and_, hidden, read.mask) == claim.mask:
        return Likeness(f"{told}: no valid row sees the padding that it leaves out", shown=True)
    if longest is not None and _alike_up_to(longest, read.mask, claim.mask):
        return Likeness(f"{told}: the same at any length up to {longest}", shown=True)
    return Contradiction(f"the file claims the mask `{claim.mask}` for it, and its graph masks `{read.mask}`")


def longest_of(model: ir.Model) -> int | None:
    """Return the longest sequence that a file takes, by what it assumes or by the fixed sizes of its inputs."""
    try:
        assumes = json.loads(model.metadata_props.get(ASSUMES_KEY, "{}")).get("assumes", [])
        checks = [str(entry["check"]).partition(":") for entry in assumes]
        limits = [int(number) for check, _, number in checks if check == "length_le"]
    except (ValueError, KeyError, TypeError, AttributeError):
        limits = []  # Session refuses a file whose assumptions are damaged.
    lengths = [value.shape[1] for value in model.graph.inputs if value.shape is not None and len(value.shape) >= 2]
    if lengths and all(isinstance(length, int) for length in lengths):
        limits.append(max(int(length) for length in lengths if isinstance(length, int)))
    return min(limits, default=None)


def _alike_up_to(longest: int, one: Mask, other: Mask) -> bool:
    """Return whether the smallest lengths at which two masks differ are longer."""
    witness = one.witness(other)
    return witness is not None and max(witness.sizes.q_len, witness.sizes.k_len) > longest
