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
MAIN = (Size(5, 13, 11), Size(3, 7, 11), Size(2, 5, 3), Size(2, 4, 2), Size(1, 13, 11), Size(1, 7, 3), Size(1, 2, 1))
# What is run at the others, the most telling first.
PAST_WINDOW = ("holes", "ones", "mixed", "left")
# By how many tokens a row is longer than a window.
BEYOND = 9
LARGE = ((Size(2, 33, 20), "mixed"),)
SMALL = (
    (Size(1, 1, 1), "ones"),
    (Size(2, 1, 7), "ones"),
    (Size(1, 7, 1), "ones"),
    (Size(1, 7, 1), "left"),
    (Size(1, 1, 1), "nothing"),
)
NO_PAST = ("ones", "left")
# A longer sequence is not run: the proof stays a matter of seconds.
MAX_LENGTH = {CPU: 2048, TWIN: 160}
# Weights times tokens that each side may be asked for: a few seconds on two cores, of which the main size takes
# this share at most. Reading all weights once takes as long as some tokens do.
WORK = {CPU: 5e10, TWIN: 5e9}
SHARE_OF_MAIN = 2 / 3
TOKENS_OF_A_RUN = 20


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
    chosen, left_out, too_many = list(_main(interface, main)), [], 0
    left = WORK[checked] - sum(_work(interface, planned, weights) for planned in chosen)
    for reach in sorted(_reaches(masks)):
        past = list(_past_window(interface, reach))
        if past[0].sizes in [planned.sizes for planned in chosen]:
            continue
        if reach + BEYOND > MAX_LENGTH[checked] or _work(interface, past[0], weights) > WORK[checked]:
            left_out.append(
                (f"length {reach + BEYOND}", f"too long here, so no row was longer than a window of {reach}")
            )
            continue
        # A lost window is seen past its end alone: one case of it is run at any price.
        left -= _work(interface, past[0], weights)
        chosen.append(past[0])
    seen = {_key(planned) for planned in chosen}
    for planned in _others(interface, masks, MAX_LENGTH[checked]):
        if _key(planned) in seen:
            continue
        seen.add(_key(planned))
        work = _work(interface, planned, weights)
        if work <= left:
            left -= work
            chosen.append(planned)
        else:
            too_many += 1
    if too_many:
        left_out.append((f"{too_many} more sizes and paddings", "a model of this size is tried with fewer"))
    return Plan(chosen, left_out)


def mains(interface: Interface, weights: int, checked: str) -> list[Size]:
    """Return the sizes at which every pattern may be run, the one to take first."""
    cheap = [
        size
        for size in MAIN
        if sum(_work(interface, planned, weights) for planned in _main(interface, size))
        <= WORK[checked] * SHARE_OF_MAIN
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
        if reach + BEYOND <= longest:
            yield from _past_window(interface, reach)
    for size, pattern in (*LARGE, *SMALL):
        yield from some(size, (pattern,))
    for size in SIZES:
        yield from some(size, MORE_NAMES)


def _past_window(interface: Interface, reach: int) -> Iterator[Planned]:
    """Yield the cases in which rows are longer than a window, the one to run first."""
    length = reach + BEYOND
    for size, patterns in ((Size(1, length, 11), PAST_WINDOW[:1]), (Size(2, length, 11), PAST_WINDOW[1:])):
        for pattern in _patterns(interface, patterns):
            yield Planned(interface.sizes(size), pattern)


def _reaches(masks: Sequence[Mask]) -> set[int]:
    """Return how far windows and chunks reach."""
    leaves = [leaf for mask in masks for leaf in leaves_of(mask._expr) if leaf[0] in ("window", "chunked")]
    return {max((n for n in leaf[1:3] if isinstance(n, int)), default=0) for leaf in leaves} - {-1, 0}


def _work(interface: Interface, planned: Planned, weights: int) -> float:
    labels = [interface.layout.batch, *interface.layout.tokens[:1]]
    return weights * (TOKENS_OF_A_RUN + math.prod(planned.sizes.get(label, 1) for label in labels))


def _key(planned: Planned) -> tuple[object, ...]:
    return (*planned.sizes.items(), planned.pattern)
