"""The inputs that a model is tried with: sizes that are not the example's, times the padding patterns."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...models.masks import Mask
from .layout import Input, Label, Layout
from .patterns import NAMES, padding_patterns
from .rows import Rows, rows_of
from .structures import draw_structure, structured


class Size(NamedTuple):
    """Sizes of a case: of the batch, of the first token axis, and of every other free axis."""

    batch: int
    length: int
    other: int


# Co-prime with each other and unlike what anyone takes for an example; the cheapest first.
SIZES = (Size(1, 1, 1), Size(2, 1, 7), Size(1, 7, 1), Size(3, 17, 11), Size(2, 33, 20))


@dataclass(frozen=True)
class Case:
    """One set of inputs.

    Attributes
    ----------
    name
        ``batch=3,seq=17,mask=left``, with the model's own names of its axes.
    sizes
        By the label of the axis.
    pattern
        Name of the padding pattern.
    inputs
        Arrays by name.
    rows
        Which rows are valid.
    """

    name: str
    sizes: dict[Label, int]
    pattern: str
    inputs: dict[str, np.ndarray]
    rows: Rows


def sizes_of(layout: Layout, size: Size, given: Mapping[Label, int] | None = None) -> dict[Label, int]:
    """Return the size of every axis: fixed ones keep theirs, free ones get the given, else `size`'s."""
    labels = dict.fromkeys([layout.batch, *layout.tokens, *(a for i in layout.inputs.values() for a in i.axes)])
    sizes: dict[Label, int] = {}
    for label in labels:
        if isinstance(label, int):
            sizes[label] = label
        elif label is not None:
            is_length = bool(layout.tokens) and label == layout.tokens[0]
            sizes[label] = size.batch if label == layout.batch else size.length if is_length else size.other
    sizes |= given or {}
    return sizes | {total: sizes[past] + sizes[new] for total, past, new in layout.sums}


def draw_cases(
    layout: Layout,
    examples: Mapping[str, np.ndarray],
    masks: Sequence[Mask] = (),
    sizes: Sequence[Size] = SIZES,
    patterns: Sequence[str] = NAMES,
    seed: int = 0,
) -> Iterator[Case]:
    """Draw the cases of some sizes and patterns; a pattern that is another's equal at a size is left out."""
    seen: set[tuple[Any, ...]] = set()
    for size in sizes:
        by_label = sizes_of(layout, size)
        for pattern in patterns if layout.masks else patterns[:1]:
            case = draw_case(layout, examples, masks, by_label, pattern, seed)
            key = (*by_label.items(), *(case.inputs[name].tobytes() for name in layout.masks))
            if key not in seen:
                seen.add(key)
                yield case


def draw_case(
    layout: Layout,
    examples: Mapping[str, np.ndarray],
    masks: Sequence[Mask],
    sizes: Mapping[Label, int],
    pattern: str = "ones",
    seed: int = 0,
    structure: str | None = None,
) -> Case:
    """Draw one case; the same arguments draw the same.

    Padding masks follow the pattern, and what the masks read of segments, prefixes and adjacency the structure, where
    one is given. Other masks attend everything for ``ones``, else any key beside the query's own. Positions count
    from 0. Floating-point inputs are drawn from the normal distribution, all others from the example's
    own values; under padding the example's least.
    """
    shown = ",".join(f"{label}={size}" for label, size in sizes.items() if isinstance(label, str))
    parts = (shown, f"mask={pattern}" if layout.masks else "", f"structure={structure}" if structure else "")
    name = ",".join(filter(None, parts)) or "example sizes"
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    kept: dict[Label, np.ndarray] = {}
    inputs: dict[str, np.ndarray] = {}
    kinds = structured(masks) if structure is not None else {}
    # Masks first: the tokens under padding depend on them.
    for given in sorted(layout.inputs, key=lambda name: name not in layout.masks):
        value, example = layout.inputs[given], examples[given]
        shape = tuple(_size(axis, n, sizes) for axis, n in zip(value.axes, example.shape, strict=True))
        if given in layout.masks:
            drawn = padding_patterns(shape[0], shape[1], rng)
            keep = drawn.get(pattern, drawn["ones"])
            label = layout.masks[given]
            kept[label] = kept.get(label, True) & keep
            array = _padding_mask(value, example, keep, rng)
            if given in kinds:
                real = example[example != value.pad]
                drawn_ids = draw_structure(kinds[given], str(structure), shape, shape[1], real, rng)
                array = np.where(keep, drawn_ids, np.asarray(value.pad))
        elif given in kinds:
            length = sizes.get(layout.tokens[0], 1) if layout.tokens else 1
            array = draw_structure(kinds[given], str(structure), shape, length, example, rng)
        else:
            array = _values(given, value, example, shape, layout, kept, pattern, rng)
        inputs[given] = np.asarray(array).astype(example.dtype)
    inputs = {given: inputs[given] for given in layout.inputs}
    return Case(name, dict(sizes), pattern, inputs, rows_of(layout, sizes, inputs, masks))


def _size(axis: Label, example: int, sizes: Mapping[Label, int]) -> int:
    return sizes.get(axis, example) if isinstance(axis, str) else example


def _padding_mask(value: Input, example: np.ndarray, keep: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    pad = np.asarray(value.pad)
    real = example[example != pad]
    if value.role != "mask" and real.size:
        return np.where(keep, rng.choice(real, keep.shape), pad)
    return np.where(keep, real.flat[0] if real.size else int(value.pad == 0), pad)


def _values(
    name: str,
    value: Input,
    example: np.ndarray,
    shape: tuple[int, ...],
    layout: Layout,
    kept: Mapping[Label, np.ndarray],
    pattern: str,
    rng: np.random.Generator,
) -> np.ndarray:
    places = layout.positions(value.axes)
    if value.role == "mask" and example.ndim >= 2:
        return dense_mask(example, shape, pattern, rng)
    tokens = [position for position, label in places.items() if label in layout.tokens]
    if value.role == "positions" and tokens:
        counted = np.arange(shape[tokens[0]]).reshape([-1 if i == tokens[0] else 1 for i in range(len(shape))])
        return np.broadcast_to(counted, shape)
    if is_float(example):
        return rng.standard_normal(shape)
    drawn = rng.choice(example.flatten(), shape) if example.size else np.zeros(shape)
    keep = kept.get(value.axes[1]) if len(value.axes) >= 2 and value.axes[0] == layout.batch else None
    if value.role == "tokens" and example.size and keep is not None and keep.shape == shape[:2]:
        # A real token that is looked for, such as the largest id that ends a sentence, must not lie in the padding.
        hidden = ~keep.reshape(*keep.shape, *([1] * (len(shape) - 2)))
        drawn = np.where(hidden, example.min(), drawn)
    return drawn


def dense_mask(example: np.ndarray, shape: tuple[int, ...], pattern: str, rng: np.random.Generator) -> np.ndarray:
    """Draw a mask of queries and keys from the values of the example; a query keeps the key at its own place.

    What attends is read from the example's first query and first key: every common mask lets that pair attend.
    """
    attends = example[(0,) * example.ndim] if example.size else example.dtype.type(1)
    others = example[example != attends]
    if others.size:
        masked = others.flat[0]
    elif is_float(example):
        masked = -np.inf if attends == 0 else 0
    else:
        masked = 1 - int(attends)
    keep = np.ones(shape, bool) if pattern == "ones" else rng.random(shape) < 0.5
    queries, keys = np.arange(shape[-2]), np.arange(shape[-1])
    keep = keep | (np.minimum(queries, shape[-1] - 1)[:, None] == keys)
    return np.where(keep, attends, masked)


def is_float(array: np.ndarray) -> bool:
    """Whether an array holds floating-point numbers, bfloat16 included."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def lengthened(case: Case, layout: Layout, examples: Mapping[str, np.ndarray], side: str, extra: int = 3) -> Case:
    """Pad a case: `extra` more tokens of random content at the ``right`` or ``left`` of every token axis, all hidden.

    Positions go on counting at the right; at the left real tokens keep theirs. The rows are not told anew.
    """
    sizes = {label: size + extra * (label in layout.tokens) for label, size in case.sizes.items()}
    drawn = draw_case(layout, examples, (), sizes, "ones", seed=1)
    inputs = {}
    for name, value in layout.inputs.items():
        old, new = case.inputs[name], drawn.inputs[name].copy()
        tokens = [position for position, label in layout.positions(value.axes).items() if label in layout.tokens]
        place = tuple(
            (slice(old.shape[axis]) if side == "right" else slice(extra, None)) if axis in tokens else slice(None)
            for axis in range(old.ndim)
        )
        if name in layout.masks:
            new[...] = np.asarray(value.pad).astype(old.dtype)
        elif value.role == "positions" and side == "left":
            new[...] = 0
        new[place] = old
        inputs[name] = new
    return replace(case, name=f"{case.name},{side}+{extra}", sizes=sizes, inputs=inputs)
