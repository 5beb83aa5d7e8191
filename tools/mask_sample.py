"""Sizes and tensors at which a mask is drawn: large enough for a window to show, with padding of both sides."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..models.masks import Mask
from .shown import shown

CELLS = 8
MOST_CELLS = 16
# Larger windows are taken for none: the tensors of a sample must stay small, whatever a graph says.
FARTHEST = 2**20


@dataclass(frozen=True)
class Sample:
    """Where a mask is drawn, and on which tensors.

    Attributes
    ----------
    q, k : numpy.ndarray
        The queries and keys that are drawn.
    q_len, k_len : int
        The lengths; there is no past.
    step : int
        Distance of neighbouring queries, and of neighbouring keys.
    tensors : dict of numpy.ndarray
        By name, of batch 2: padding is on the right of row 0 and on the left of row 1.
    free : tuple of str
        Names of the tensors that decide each pair by themselves, and of which no sample says more than another.
    caption : tuple of str
        The sample in words.
    """

    q: np.ndarray
    k: np.ndarray
    q_len: int
    k_len: int
    step: int
    tensors: dict[str, np.ndarray]
    free: tuple[str, ...]
    caption: tuple[str, ...]


def sample(*masks: Mask, cross: bool = False, reach: int | None = None) -> Sample:
    """Choose lengths and tensors at which what a mask says can be seen.

    Parameters
    ----------
    *masks : Mask
        All are drawn at the same lengths and on the same tensors.
    cross : bool
        Whether there are fewer queries than keys.
    reach : int, optional
        Number of keys that must be drawn at least, whatever the windows are; that of the widest unless given.
    """
    leaves = [leaf for mask in masks for leaf in mask.leaves]
    sides = [side + 1 for leaf in leaves for side in leaf.window]
    # A window of 5 neighbours ends at the sixth key.
    farthest = max((side for side in sides if side <= FARTHEST), default=0) if reach is None else reach
    step = 1 if farthest + 3 <= MOST_CELLS else -(-farthest // (CELLS // 2))
    keys = max(CELLS, farthest + 3) if step == 1 else CELLS
    queries = keys - keys // 4 if cross or any(map(_is_aligned_to_lengths, leaves)) else keys
    tensors: dict[str, np.ndarray] = {}
    free: list[str] = []
    caption = [f"every {ordinal(step)} position of {keys * step}"] if step > 1 else []
    if reach is None and max(sides, default=0) > FARTHEST:
        caption.append(f"bounds beyond {FARTHEST} are not drawn")
    specs = {name: spec for mask in masks for name, spec in mask.tensors.items()}
    for spec in specs.values():
        if spec.rank > 2:
            free.append(spec.name)
            continue
        if spec.rank == 1:
            tensors[spec.name] = np.array([keys * 5 // 8, keys * 3 // 8]) * step
            caption.append(f"{shown(spec.name)} is {' and '.join(map(str, tensors[spec.name]))}")
            continue
        count = queries if spec.dims == "bq" else keys
        pads = [_pad(leaf) for leaf in leaves if _kind(leaf) in _PADDING and spec.name in leaf.tensors]
        values = [value for value in range(1, len(pads) + 4) if value not in pads]
        cells = np.full((2, count), values[0])
        if any(_kind(leaf) == "segments" and spec.name in leaf.tensors for leaf in leaves):
            for row, cuts in enumerate(((3, 6), (2, 5))):
                cells[row] = np.array(values)[np.searchsorted([keys * cut // 8 for cut in cuts], range(count), "right")]
            caption.append(f"{shown(spec.name)} has 3 segments")
        if pads:
            # Masks that read two paddings are told apart by how much of each there is.
            padded = max(1, count // 4) + sum(other in tensors for other in specs)
            cells[0, count - padded :] = cells[1, :padded] = pads[0]
            caption.append(f"{shown(spec.name)} pads {padded * step} on the right (b=0) or left (b=1)")
        tensors[spec.name] = np.repeat(cells, step, axis=1)
    positions = np.arange(keys) * step
    return Sample(
        positions[:queries], positions, queries * step, keys * step, step, tensors, tuple(free), tuple(caption)
    )


_PADDING = ("padding", "query_padding")


def _kind(leaf: Mask) -> str:
    return str(leaf).partition("(")[0]


def _pad(leaf: Mask) -> int:
    """Return the value that stands for padding; a name that ends like it is quoted."""
    found = re.search(r" != (-?\d+)\)$", str(leaf))
    return int(found[1]) if found else 0


def _is_aligned_to_lengths(leaf: Mask) -> bool:
    """Return whether an offset names Q or K; tensors of these names are quoted."""
    return re.search(r"\b[QK]\b", re.sub(r'"(\\.|[^"\\])*"', "", str(leaf))) is not None


def ordinal(number: int) -> str:
    """Return `1024th`."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ends.get(number % 10, 'th')}"


def fill(sample: Sample, masks: Iterable[Mask], values: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Return for each mask the tensors that it names; `values` are of shape [Q, K], for the free ones."""
    shape = (1, sample.q_len, sample.k_len)
    filled = []
    for mask in masks:
        given = {name: sample.tensors[name] for name in mask.tensors if name in sample.tensors}
        for name, spec in mask.tensors.items():
            if name in values:
                value = values[name].astype(bool if spec.rank == 4 else np.int64)
                given[name] = np.broadcast_to(value, (1, *shape) if spec.rank == 4 else shape)
        filled.append(given)
    return filled
