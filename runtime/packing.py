"""Inputs that tell a packed model its real tokens (``maskport.packing``), computed on the host from the mask.

A model that leaves padding out of its computation must know which tokens are real. If it counted them on the device,
the host would have to wait for the count; so it takes them as inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .assumptions import versioned
from .errors import InputError, ModelError
from .inputs import DeclaredValue

PACKING_KEY = "maskport.packing"
# What stands where the number of tokens was rounded up.
DUMMY = -1


@dataclass(frozen=True)
class PackedMask:
    """A mask and the inputs that follow from it.

    Attributes
    ----------
    mask : str
        Name of the mask, [B, S].
    pad : int
        Its value where there is no token.
    tokens : str
        Name of the input int64 [T]: places b * S + s of the tokens, row by row, then -1 up to a round number.
    lengths : str
        Name of the input int64 [B]: how many of the tokens are each row's.
    places : tuple of int
        Positions that are kept in every row, even as padding; they come after the row's real tokens.
    bucket : int
        What the number of tokens is rounded up to, though not beyond B * S.
    """

    mask: str
    pad: int
    tokens: str
    lengths: str
    places: tuple[int, ...]
    bucket: int

    def inputs(self, mask: np.ndarray) -> dict[str, np.ndarray]:
        """Return the inputs for a mask [B, S]."""
        flat, lengths = self._kept(mask)
        number = min(-(-len(flat) // self.bucket) * self.bucket, mask.size)
        tokens = np.full(number, DUMMY, np.int64)
        tokens[: len(flat)] = flat
        return {self.tokens: tokens, self.lengths: lengths}

    def check(self, mask: np.ndarray, tokens: np.ndarray, lengths: np.ndarray) -> None:
        """Raise InputError if inputs that were given are not those of the mask."""
        flat, expected = self._kept(mask)
        most = len(flat) + max(mask.shape[1], self.bucket)
        if not np.array_equal(lengths, expected):
            raise InputError(f"input {self.lengths!r} must count the tokens of {self.mask!r}{self._advice}")
        right = np.array_equal(tokens[: len(flat)], flat) and (tokens[len(flat) :] == DUMMY).all()
        if not right or len(tokens) > most:
            raise InputError(
                f"input {self.tokens!r} must be the {len(flat)} tokens of {self.mask!r}, then {DUMMY} up to at most "
                f"{most}{self._advice}"
            )

    @property
    def _advice(self) -> str:
        return f"; leave {self.tokens!r} and {self.lengths!r} out, and the session computes them"

    def _kept(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of the tokens, and how many each row has."""
        valid = mask != self.pad
        length = mask.shape[1]
        flat, lengths = np.flatnonzero(valid), np.count_nonzero(valid, axis=1)
        if not self.places and lengths.all():
            return flat, lengths
        places = {place % length for place in self.places if -length <= place < length}
        columns = sorted(places | {0}) if length else []
        extra = ~valid[:, columns]
        if columns and 0 not in places:
            # A row without a token keeps its first, so that no row is without one.
            extra[:, 0] = lengths == 0
        row, column = np.nonzero(extra)
        after = np.cumsum(lengths)[row]
        flat = np.insert(flat, after, row * length + np.array(columns, np.int64)[column])
        return flat, lengths + np.count_nonzero(extra, axis=1)


def read_packing(metadata: Mapping[str, str], declared: Sequence[DeclaredValue]) -> tuple[PackedMask, ...]:
    """Return the masks whose tokens the file wants to be told.

    Raises
    ------
    ModelError
        If the metadata is damaged, of another version, or names inputs that don't exist.
    """
    try:
        entries = versioned(metadata, PACKING_KEY).get("masks", [])
        masks = tuple(_packed_mask(entry) for entry in entries)
        shapes = {item.name: (item.type, len(item.shape)) for item in declared}
        for mask in masks:
            if (shapes[mask.tokens], shapes[mask.lengths]) != (("tensor(int64)", 1),) * 2 or shapes[mask.mask][1] != 2:
                raise ValueError(f"the inputs {mask.mask}, {mask.tokens} or {mask.lengths} have other types")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"the file's {PACKING_KEY} is damaged: {error!r}; make the file again") from error
    return masks


def packing_inputs(masks: Iterable[PackedMask]) -> set[str]:
    """Return the names of the inputs that follow from masks."""
    return {name for mask in masks for name in (mask.tokens, mask.lengths)}


def _packed_mask(entry: Mapping[str, Any]) -> PackedMask:
    names = {name: str(entry[name]) for name in ("mask", "tokens", "lengths")}
    bucket = int(entry["bucket"])
    if bucket < 1:
        raise ValueError(f"bucket is {bucket}")
    return PackedMask(pad=int(entry["pad"]), places=tuple(map(int, entry["places"])), bucket=bucket, **names)
