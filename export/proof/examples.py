"""What values the inputs of a file take: the example that cases are drawn from, where nobody gave one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ...models.mask_leaves import leaves_of
from ...models.masks import Mask
from ..cases.layout import Input, Layout
from ..errors import ProofFailed

# Enough ids of a table that rows differ; every table has the rows 0 and 1.
MOST_IDS = 64
LENGTHS = (1, 2, 3, 4)
SEGMENTS = (0, 1, 2)
FEW = (0, 1)
# Of one example: cases are several times as long, and many.
MOST_BYTES = 1 << 28


def examples_of(
    graph: ir.Graph, layout: Layout, masks: Sequence[Mask], bounds: Mapping[str, int], seed: int
) -> dict[str, np.ndarray]:
    """Return an array per input whose numbers are values that the input takes, of the input's rank.

    Raises
    ------
    ProofFailed
        If an input holds no numbers, or too many.
    """
    rng = np.random.default_rng([seed, 1])
    segments, lengths = _named(masks)
    examples = {}
    for value in graph.inputs:
        name = str(value.name)
        # A sequence of numbers, too, has an element type.
        tensor = isinstance(value.type, ir.TensorType) and not value.type.denotation
        if not tensor or value.dtype is None or value.dtype == ir.DataType.STRING:
            raise ProofFailed(
                f"the input {name!r} is no tensor of numbers, so source and result can't be run on drawn inputs; "
                "leave the check out to write the file unproven"
            )
        given = layout.inputs[name]
        shape = tuple(axis if isinstance(axis, int) else 2 for axis in given.axes)
        dtype = value.dtype.numpy()
        if (size := math.prod(shape) * dtype.itemsize) > MOST_BYTES:
            raise ProofFailed(
                f"the input {name!r} is {size / 2**30:.1f} GiB at the sizes that it declares, at most "
                f"{MOST_BYTES / 2**30:g} GiB is drawn"
            )
        if given.role == "mask" and given.pad is None:
            array = np.zeros(shape) if _is_float(dtype) else np.ones(shape)
        elif given.pad is not None and given.role == "mask":
            array = np.full(shape, int(given.pad == 0))
        elif _is_float(dtype):
            array = rng.standard_normal(shape)
        else:
            known = SEGMENTS if name in segments else LENGTHS if name in lengths else FEW
            values = _ids(bounds[name], rng) if name in bounds else np.asarray(known)
            # At least as many numbers as there are values: a case draws from them.
            array = np.resize(values, shape if np.prod(shape) >= values.size else _wider(shape, values.size, given))
        examples[name] = array.astype(dtype)
    return examples


def _named(masks: Sequence[Mask]) -> tuple[set[str], set[str]]:
    """Return the tensors that the masks name as segments, and those that hold a number per row."""
    segments = {
        name for mask in masks for leaf in leaves_of(mask._expr) if leaf[0] == "segments" for name in leaf[1:] if name
    }
    lengths = {name for mask in masks for name, spec in mask.tensors.items() if spec.dims == "b"}
    return segments, lengths


def _ids(bound: int, rng: np.random.Generator) -> np.ndarray:
    if bound <= MOST_IDS:
        return np.arange(bound)
    return np.unique([0, 1, bound - 1, *rng.integers(2, bound, MOST_IDS - 3)])


def _wider(shape: tuple[int, ...], size: int, given: Input) -> tuple[int, ...]:
    """Return a shape that holds `size` numbers, longer on an axis that is free; the same where none is."""
    free = next((place for place, axis in enumerate(given.axes) if not isinstance(axis, int)), None)
    if free is None:
        return shape
    rest = int(np.prod(shape)) // shape[free]
    return (*shape[:free], -(-size // max(rest, 1)), *shape[free + 1 :])


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"
