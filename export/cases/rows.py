"""Which rows of an output are valid, which are padding, and which have no key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...models.masks import Mask, Window
from .layout import Label, Layout

VALID, PADDING, EMPTY = "valid", "padding", "empty"
KINDS = (VALID, PADDING, EMPTY)


@dataclass(frozen=True)
class Rows:
    """The rows of a case.

    Attributes
    ----------
    real
        Per token axis, whether a token is real: bool [B, S].
    has_key
        Per token axis, whether the masks leave its row a key: bool [B, S].
    """

    real: dict[Label, np.ndarray]
    has_key: dict[Label, np.ndarray]

    def kinds(self, layout: Layout, axes: tuple[Label, ...], shape: tuple[int, ...]) -> dict[str, np.ndarray] | None:
        """Return where an output holds rows of each kind: bool, broadcastable to `shape`.

        An output without token axes may have read any row: it counts as valid for a batch row that has a valid token
        on every axis, and a key for every token, padding included. None if the output has no batch axis and not
        every row is valid: then its values mix rows of all kinds.
        """
        ones = np.ones((1,) * len(shape), bool)
        if all(self.real[label].all() and self.has_key[label].all() for label in self.real):
            return {VALID: ones, PADDING: ~ones, EMPTY: ~ones}
        places = layout.positions(axes)
        batch = [position for position, label in places.items() if label == layout.batch]
        if not batch:
            return None
        valid, has_key = ones, ones
        found = [(position, label) for position, label in places.items() if label in layout.tokens]
        for position, label in found:
            valid = valid & _placed(
                np.logical_and(self.real[label], self.has_key[label]), batch[0], position, len(shape)
            )
            has_key = has_key & _placed(self.has_key[label], batch[0], position, len(shape))
        if not found:
            for label in layout.tokens:
                has_keys = self.has_key[label].all(axis=1, keepdims=True)
                row = np.logical_and(self.real[label].any(axis=1, keepdims=True), has_keys)
                valid = valid & _placed(row, batch[0], None, len(shape))
            has_key = valid
        return {VALID: valid, PADDING: ~valid & has_key, EMPTY: ~valid & ~has_key}


def rows_of(
    layout: Layout, sizes: Mapping[Label, int], inputs: Mapping[str, np.ndarray], masks: Sequence[Mask]
) -> Rows:
    """Tell the rows of a case from its masks.

    A mask expression of `masks` says it exactly for the token axis that all its tensors lie on. Where a batch row has
    no real token on some axis, no row of that batch row has a key on every attention, so all of them count as empty.
    """
    batch = sizes.get(layout.batch, 1)
    real = {label: np.ones((batch, sizes[label]), bool) for label in layout.tokens}
    for name, label in layout.masks.items():
        real[label] = real[label] & (inputs[name] != layout.inputs[name].pad)
    has_key = {label: np.ones_like(value) for label, value in real.items()}
    for mask in masks:
        label = _axis_of(mask, layout)
        if label is not None and not Window(0, 0).implies(mask):
            tensors: dict[str, Any] = {name: inputs[name] for name in mask.tensors}
            dense = mask.dense(sizes[label], sizes[label], **tensors)
            has_key[label] = has_key[label] & np.asarray(dense.any(axis=3).all(axis=1))
    for total, _, new in layout.sums:
        # The queries are the last of the keys.
        real[new] = real[new] & real[total][:, -sizes[new] :]
        has_key[new] = has_key[new] & has_key[total][:, -sizes[new] :]
    somewhere = np.ones((batch, 1), bool)
    # A cache may be empty: the keys are those of this run, too.
    for label in set(layout.tokens) - {past for _, past, _ in layout.sums}:
        somewhere = somewhere & (real[label] & has_key[label]).any(axis=1, keepdims=True)
    return Rows(real, {label: value & somewhere for label, value in has_key.items()})


def _axis_of(mask: Mask, layout: Layout) -> Label:
    """Return the token axis that the mask's tensors lie on; None if there is no such axis, or more than one."""
    labels: set[Label] = set()
    for name in mask.tensors:
        if name not in layout.inputs:
            return None
        labels |= set(layout.positions(layout.inputs[name].axes).values()) - {layout.batch}
    return labels.pop() if len(labels) == 1 else None


def _placed(rows: np.ndarray, batch: int, token: int | None, rank: int) -> np.ndarray:
    """Put [B, S] at the axes `batch` and `token` of an array of `rank`."""
    if token is not None and token < batch:
        rows, batch, token = rows.T, token, batch
    shape = [1] * rank
    shape[batch] = rows.shape[0]
    if token is not None:
        shape[token] = rows.shape[1]
    return rows.reshape(shape)
