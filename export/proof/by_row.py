"""A source that fails at any batch above 1, run on a batch row by row: what its rows mean is known all the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from .interface import Interface
from .side import Side


def by_row(side: Side, interface: Interface) -> Side:
    """Return a side that runs the rows of a batch one after the other and puts their outputs together."""
    layout = interface.layout
    batched = {
        name: value.axes.index(layout.batch) for name, value in layout.inputs.items() if layout.batch in value.axes
    }
    axes = layout.outputs | interface.hidden
    joined = {name: found.index(layout.batch) for name, found in axes.items() if layout.batch in found}

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = {inputs[name].shape[axis] for name, axis in batched.items()}
        found = [
            side.run(
                {name: array.take([row], batched[name]) if name in batched else array for name, array in inputs.items()}
            )
            for row in range(max(rows, default=1))
        ]
        return {
            name: np.concatenate([each[name] for each in found], joined[name]) if name in joined else array
            for name, array in found[0].items()
        }

    return replace(side, how=f"{side.how}, row by row", run=run)
