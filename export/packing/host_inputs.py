"""The inputs that tell a packed model its tokens: what the file says of them, and what they are for a mask.

The runtime computes them for its users; here they are written as they are meant, row by row, for proofs and tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ...models.masks import Mask
from ..io_metadata import IO_KEY, Axes, axes_of, io_of, read_io

__all__ = ["BUCKET", "PACKING_KEY", "describe_packing", "host_inputs", "lengths_name", "packing_inputs", "tokens_name"]

PACKING_KEY = "maskport.packing"
PACKING_VERSION = 1
# The number of tokens is rounded up to a multiple, so that few sizes occur.
BUCKET = 64


def tokens_name(mask: str) -> str:
    """Return the name of the input that tells which tokens are kept."""
    return f"{mask}.tokens"


def lengths_name(mask: str) -> str:
    """Return the name of the input that tells how many tokens of each row are kept."""
    return f"{mask}.lengths"


def describe_packing(model: ir.Model, name: str, padding: Mask, places: Sequence[int]) -> None:
    """Write into a model's metadata which inputs tell its tokens.

    Parameters
    ----------
    name : str
        The input that is the mask.
    padding : Mask
        What it means.
    places : sequence of int
        Positions whose tokens are kept in every row even where they are padding; -1 is the last.
    """
    entry = {
        "mask": name,
        "pad": padding._expr[2],
        "tokens": tokens_name(name),
        "lengths": lengths_name(name),
        "places": list(places),
        "bucket": BUCKET,
    }
    entries = [*_entries(model.metadata_props), entry]
    model.metadata_props[PACKING_KEY] = json.dumps({"version": PACKING_VERSION, "masks": entries})
    axes = {str(value.name): axes_of(value) for value in model.graph.inputs}
    io = _io(model, axes, name, padding)
    for added in (entry["tokens"], entry["lengths"]):
        io["inputs"][added] = {"role": "packing", "axes": list(axes[added])}
    model.metadata_props[IO_KEY] = json.dumps(io)


def _io(model: ir.Model, axes: Mapping[str, Axes], name: str, padding: Mask) -> dict[str, Any]:
    """Return what the file says of its inputs and outputs; where it says nothing, what masks tell."""
    if (io := read_io(model.metadata_props)) is not None:
        return io
    added = packing_inputs(model.metadata_props)
    given = {input_: found for input_, found in axes.items() if input_ not in added}
    outputs = {str(value.name): axes_of(value) for value in model.graph.outputs}
    return io_of(given, outputs, [padding], {}, {name: padding._expr[2]})


def packing_inputs(metadata: Mapping[str, str]) -> set[str]:
    """Return the names of the inputs that tell tokens."""
    return {entry[which] for entry in _entries(metadata) for which in ("tokens", "lengths")}


def host_inputs(metadata: Mapping[str, str], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the inputs that tell tokens, of a model with this metadata and for these masks."""
    found: dict[str, np.ndarray] = {}
    for entry in _entries(metadata):
        valid = inputs[entry["mask"]] != entry["pad"]
        batch, length = valid.shape
        rows = []
        for row in range(batch):
            real = np.flatnonzero(valid[row])
            # A row without a token keeps its first.
            places = [*entry["places"], *([] if len(real) else [0])]
            kept = {place % length for place in places if -length <= place < length}
            rows.append([*real, *sorted(kept.difference(real))])
        tokens = [row * length + position for row, kept in enumerate(rows) for position in kept]
        bucket = entry["bucket"]
        number = min(-(-len(tokens) // bucket) * bucket, batch * length)
        tokens += [-1] * (number - len(tokens))
        found[entry["tokens"]] = np.array(tokens, np.int64)
        found[entry["lengths"]] = np.array([len(row) for row in rows], np.int64)
    return found


def _entries(metadata: Mapping[str, str]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(metadata.get(PACKING_KEY, "{}")).get("masks", [])
    return entries
