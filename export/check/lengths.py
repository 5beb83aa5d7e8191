"""Lengths at which a model may change what it does: beyond its windows, its example and the exporter's bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import nn

from ...models.mask_leaves import leaves_of
from ...models.masks import Mask
from ..cases.draw import SIZES, Size, sizes_of
from ..cases.layout import Label
from .subject import Subject

# Attributes of modules and of transformers' configurations that hold a window.
WINDOWS = (
    "sliding_window",
    "attention_window",
    "attention_chunk_size",
    "local_attention",
    "window_size",
    "window",
    "chunk_size",
)
# A longer sequence is not run: the check stays a matter of seconds.
MAX_LENGTH = 2048
SHORT = Size(2, 7, 11)


def extra_sizes(
    subject: Subject, bounds: Mapping[str, tuple[int, int | None]]
) -> tuple[list[dict[Label, int]], list[tuple[str, str]]]:
    """Return sizes beyond windows, example and bounds, and which of them are too large to run, with the reason."""
    layout = subject.layout
    largest = max(size.length for size in SIZES)
    wanted: dict[tuple[Label, int], str] = {}
    if layout.tokens and isinstance(layout.tokens[0], str):
        longest = max(subject.example_sizes[label] for label in layout.tokens)
        for reach, why in [(longest, "the example"), *windows_of(subject.module, subject.masks)]:
            if reach >= largest // 2:
                wanted[layout.tokens[0], 2 * reach + 1] = f"longer than {why} ({reach})"
    for free, (low, high) in bounds.items():
        if high is not None:
            wanted[free, high + 1] = f"the exporter took {free} <= {high} for granted"
        if low > 2:
            wanted[free, low - 1] = f"the exporter took {free} >= {low} for granted"
    sizes, too_long = [], []
    for (axis, size), why in wanted.items():
        if size <= MAX_LENGTH:
            sizes.append(sizes_of(layout, SHORT, {axis: size}))
        else:
            too_long.append((f"{axis}={size}", f"{why}; more than {MAX_LENGTH} is not run"))
    return sizes, too_long


def windows_of(module: nn.Module, masks: Sequence[Mask]) -> Iterator[tuple[int, str]]:
    """Yield how far a module's windows and chunks reach, each with the name of what says so."""
    for mask in masks:
        for leaf in leaves_of(mask._expr):
            if leaf[0] in ("window", "chunked"):
                yield max(value for value in leaf[1:3] if isinstance(value, int)), f"the mask `{mask}`"
    for holder in [getattr(module, "config", None), *module.modules()]:
        for attribute in WINDOWS:
            value = getattr(holder, attribute, None)
            for reach in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(reach, int) and not isinstance(reach, bool) and reach > 0:
                    yield reach, attribute
