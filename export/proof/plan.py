"""Which sizes and padding patterns are run: as many as the work that a model of its size allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import onnx_ir as ir

from ...models.mask_leaves import leaves_of
from ...models.masks import Mask
from ..cases.draw import SIZES, Size
from ..cases.layout import Label
from ..cases.patterns import MORE_NAMES
from .interface import Interface
from .side import CPU, TWIN

# Every pattern is run at one of these sizes, the first that is cheap enough and that the source takes. Five rows are
# as many as fall into groups of their own by their length.
MAIN = (Size(5, 13, 11), Size(3, 7, 11), Size(2, 5, 3), Size(2, 4, 2), Size(1, 2, 1))
# What is run at the others, the most telling first.
BEYOND_WINDOW = ("ones", "left", "holes", "mixed")
SMALL = (Size(1, 1, 1), Size(2, 1, 7), Size(1, 7, 1))
SMALL_PATTERNS = ("ones", "nothing", "left", "one token")
LARGE = ((Size(2, 33, 20), "mixed"), (Size(3, 17, 11), "holes"), (Size(2, 33, 20), "ones"), (Size(3, 17, 11), "left"))
NO_PAST = ("ones", "left")
# A longer sequence is not run: the proof stays a matter of seconds.
MAX_LENGTH = {CPU: 2048, TWIN: 160}
# Weights times tokens that each side may be asked for: a few seconds on two cores, of which the main size takes
# at most half.
WORK = {CPU: 5e10, TWIN: 5e9}


class Planned(NamedTuple):
    """One case to run: sizes by axis and the name of a padding pattern."""

    sizes: dict[Label, int]
    pattern: str


class Plan(NamedTuple):
    """The cases to run, and what is left out, each with the reason."""

    cases: list[Planned]
    left_out: list[tuple[str, str]]


def plan(interface: Interface, masks: Sequence[Mask], weights: int, checked: str, main: Size) -> Plan:
    """Choose the cases of a model by the number of its weights."""
    left = WORK[checked] - sum(_work(interface, planned, weights) for planned in _main(interface, main))
    chosen, left_out = list(_main(interface, main)), _too_long(masks, MAX_LENGTH[checked])
    seen = {_key(planned) for planned in chosen}
    for planned in _others(interface, masks, MAX_LENGTH[checked]):
        key, work = _key(planned), _work(interface, planned, weights)
        if key in seen:
            continue
        seen.add(key)
        if work <= left:
            left -= work
            chosen.append(planned)
        else:
            name = ",".join(f"{label}={size}" for label, size in planned.sizes.items() if isinstance(label, str))
            left_out.append((f"{name},mask={planned.pattern}", "a model of this size is tried with fewer cases"))
    return Plan(chosen, left_out)


def mains(interface: Interface, weights: int, checked: str) -> list[Size]:
    """Return the sizes at which every pattern may be run, the one to take first."""
    cheap = [
        size
        for size in MAIN
        if sum(_work(interface, planned, weights) for planned in _main(interface, size)) <= WORK[checked] / 2
    ]
    return cheap or list(MAIN[2:])


def weights_of(graph: ir.Graph) -> int:
    """Return how many numbers the matrices hold that are multiplied with; tables that are looked up in cost nothing."""
    found = 0
    for value in graph.initializers.values():
        shape = value.const_value.shape.numpy() if value.const_value is not None else ()
        if len(shape) >= 2 and any(node.op_type != "Gather" for node, _ in value.uses()):
            found += math.prod(shape)
    return found


def _main(interface: Interface, size: Size) -> Iterator[Planned]:
    for pattern in _patterns(interface, MORE_NAMES):
        yield Planned(interface.sizes(size), pattern)


def _patterns(interface: Interface, wanted: Sequence[str]) -> list[str]:
    """Return the wanted patterns that differ for the model: masks of queries and keys are open or have holes."""
    if interface.layout.masks:
        return list(wanted)
    dense = any(value.role == "mask" for value in interface.layout.inputs.values())
    return ["ones", "holes"] if dense else ["ones"]


def _others(interface: Interface, masks: Sequence[Mask], longest: int) -> Iterator[Planned]:
    def some(size: Size, patterns: Sequence[str], given: Mapping[Label, int] | None = None) -> Iterator[Planned]:
        for pattern in _patterns(interface, patterns):
            yield Planned(interface.sizes(size, given), pattern)

    for _, past, _ in interface.layout.sums:
        # The first run of a decoder with a cache.
        yield from some(Size(2, 7, 7), NO_PAST, {past: 0})
        yield from some(Size(2, 1, 7), NO_PAST)
    for reach in sorted(_reaches(masks)):
        if 2 * reach + 1 <= longest:
            yield from some(Size(2, 2 * reach + 1, 11), BEYOND_WINDOW)
    for size in SMALL:
        yield from some(size, SMALL_PATTERNS)
    for size, pattern in LARGE:
        yield from some(size, (pattern,))
    for size in (*SIZES[3:], *SMALL):
        yield from some(size, MORE_NAMES)


def _too_long(masks: Sequence[Mask], longest: int) -> list[tuple[str, str]]:
    return [
        (f"length {2 * reach + 1}", f"it is longer than {longest}, so that rows past a window of {reach} are not run")
        for reach in sorted(_reaches(masks))
        if 2 * reach + 1 > longest
    ]


def _reaches(masks: Sequence[Mask]) -> set[int]:
    """Return how far windows and chunks reach."""
    leaves = [leaf for mask in masks for leaf in leaves_of(mask._expr) if leaf[0] in ("window", "chunked")]
    return {max((n for n in leaf[1:3] if isinstance(n, int)), default=0) for leaf in leaves} - {-1, 0}


def _work(interface: Interface, planned: Planned, weights: int) -> float:
    labels = [interface.layout.batch, *interface.layout.tokens[:1]]
    return weights * math.prod(planned.sizes.get(label, 1) for label in labels)


def _key(planned: Planned) -> tuple[object, ...]:
    return (*planned.sizes.items(), planned.pattern)
