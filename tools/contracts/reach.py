"""Which tokens each row may depend on: what the masks of all layers let through, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ...export.cases.draw import Case
from ...export.cases.layout import Label
from ...models.masks import Mask
from .subject import Arrays, Subject

# Of a row's axis and a token's axis: bool [B, rows, tokens].
Reach = dict[tuple[Label, Label], np.ndarray]


def reach(subject: Subject, case: Case, computed: Arrays, part: Callable[[Mask], Mask]) -> Reach:
    """Return which tokens a row may depend on, if each mask is but a part of itself.

    All that isn't attention works on each token for itself; a row passes on what it has read. An attention on axes
    that aren't known reads everything.
    """
    layout = subject.layout
    batch = case.sizes.get(layout.batch, 1)
    labels = layout.tokens
    found: Reach = {}
    for rows in labels:
        for tokens in labels:
            shape = (batch, case.sizes[rows], case.sizes[tokens])
            # A token is in its own row; in a row of the other axis it is only by attention.
            found[rows, tokens] = np.broadcast_to(np.eye(*shape[1:], dtype=bool) & (rows == tokens), shape)
    for claim in subject.claims:
        if claim.queries not in labels or claim.keys not in labels:
            return {pair: np.ones_like(value) for pair, value in found.items()}
        attended = attends(subject, case, computed, part(claim.mask), claim.queries, claim.keys)
        for tokens in labels:
            passed = attended.astype(np.float32) @ found[claim.keys, tokens].astype(np.float32) > 0
            found[claim.queries, tokens] = found[claim.queries, tokens] | passed
    for total, past, new in layout.sums:
        # Of the keys of a cache, those of this run's tokens.
        for rows in labels:
            if (rows, total) in found:
                found[rows, new] = found[rows, new] | found[rows, total][..., case.sizes[past] :]
    return found


def attends(subject: Subject, case: Case, computed: Arrays, mask: Mask, queries: Label, keys: Label) -> np.ndarray:
    """Return the mask at a case, over all heads: bool [B or 1, Q, K]."""
    sums: Mapping[Label, Label] = {total: past for total, past, _ in subject.layout.sums}
    past = case.sizes[sums[keys]] if keys in sums and keys != queries else 0
    q_len, k_len = case.sizes[queries], case.sizes[keys]
    dense = np.asarray(mask.dense(q_len, k_len, past, **subject.tensors(case, computed, mask)))
    return np.broadcast_to(dense.any(axis=1), (dense.shape[0], q_len, k_len))
