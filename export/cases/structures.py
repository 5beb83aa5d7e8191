"""What masks read beside padding: who is of whose segment, how long a prefix is, who is whose neighbour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...models.mask_leaves import leaves_of
from ...models.masks import Mask

# Of a row: all tokens together, runs of tokens, each token by itself, and any with any.
STRUCTURES = ("whole", "parts", "apart", "mixed")
SEGMENTS, PREFIX, ADJACENCY = "segments", "prefix", "adjacency"


def structured(masks: Sequence[Mask]) -> dict[str, str]:
    """Return the tensors that structure a row's tokens, each with its kind, of all masks."""
    found: dict[str, str] = {}
    for mask in masks:
        for kind, *arguments in leaves_of(mask._expr):
            if kind in (SEGMENTS, ADJACENCY):
                found |= {name: kind for name in arguments if name is not None}
        found |= {name: PREFIX for name, spec in mask.tensors.items() if spec.dims == "b"}
    return found


def draw_structure(
    kind: str, structure: str, shape: tuple[int, ...], length: int, example: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw a tensor of one kind.

    Parameters
    ----------
    kind
        ``segments`` [B, S], ``prefix`` [B] or ``adjacency`` [B or 1, Q, K].
    structure
        One of `STRUCTURES`. A prefix is then all tokens, some, none, or another from row to row.
    shape, length
        Of the tensor; how many tokens a row has.
    example
        Ids of segments are taken from it: they may be looked up in a table, too.
    rng
        Source of all else.
    """
    if kind == PREFIX:
        some = rng.integers(0, length + 1, shape)
        every = np.arange(int(np.prod(shape))).reshape(shape) % 3
        mixed = np.choose(every, (np.zeros(shape, int), some, np.full(shape, length)))
        return {"whole": np.full(shape, length), "parts": some, "apart": np.zeros(shape, int), "mixed": mixed}[
            structure
        ]
    if kind == ADJACENCY:
        itself = np.arange(shape[-2])[:, None] == np.arange(shape[-1])
        any_ = rng.random(shape) < 0.4
        drawn = {"whole": np.ones(shape, bool), "parts": any_ | itself, "apart": itself, "mixed": any_}[structure]
        return np.broadcast_to(drawn, shape)
    ids = np.unique(example)
    if len(ids) < 2:
        ids = np.array([0, 1]) if not len(ids) else np.array([ids[0], ids[0] + 1])
    begins = rng.random(shape) < 3 / max(length, 1)
    which = {
        "whole": np.zeros(shape, int),
        "parts": begins.cumsum(axis=-1),
        "apart": np.broadcast_to(np.arange(shape[-1]), shape),
        "mixed": rng.integers(len(ids), size=shape),
    }[structure]
    return np.asarray(ids[which % len(ids)])
