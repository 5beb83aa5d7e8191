"""The padding that masks are tried with: where a batch's real tokens lie."""

from __future__ import annotations

import numpy as np

NAMES = ("ones", "right", "left", "holes", "one token", "no token")
# What a rewrite of a graph is tried with beside these.
MORE_NAMES = (*NAMES, "mixed", "nothing")


def padding_patterns(batch: int, length: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Draw keep masks by the name of their pattern.

    Parameters
    ----------
    batch, length
        Shape of the masks.
    rng
        Source of the lengths and places.

    Returns
    -------
    dict of str to bool array [batch, length]
        True is a real token. ``ones``: no padding. ``right``, ``left``: padding on that side. ``holes``: anywhere.
        ``one token``: one real token per row. ``no token``: the first row has none, the others have no padding.
        ``mixed``: padding on the right, on the left and anywhere, from row to row. ``nothing``: no row has a token.
        A pattern that equals an earlier one at this size is left out, so that nothing counts twice.
    """
    positions = np.arange(length)
    lengths = rng.integers(1, max(length, 2), size=(batch, 1))
    holes = rng.random((batch, length)) < 0.5
    holes[np.arange(batch), rng.integers(length, size=batch)] = True
    drawn = {
        "ones": np.ones((batch, length), bool),
        "right": positions < lengths,
        "left": positions >= length - lengths,
        "holes": holes,
        "one token": positions == rng.integers(length, size=(batch, 1)),
        "no token": np.broadcast_to(np.arange(batch)[:, None] > 0, (batch, length)),
    }
    kinds = [drawn[name] for name in ("right", "left", "holes")]
    drawn["mixed"] = np.array([kinds[row % len(kinds)][row] for row in range(batch)]).reshape(batch, length)
    drawn["nothing"] = np.zeros((batch, length), bool)
    patterns: dict[str, np.ndarray] = {}
    for name in MORE_NAMES:
        if not any(np.array_equal(drawn[name], other) for other in patterns.values()):
            patterns[name] = drawn[name]
    return patterns
