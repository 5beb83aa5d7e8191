"""Which cases a validation runs: each value of a dimension meets each value of every other, in few cases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...export.cases.draw import Case, Size, draw_case, sizes_of
from ...export.cases.layout import Layout
from ...export.cases.patterns import padding_patterns
from ...export.cases.structures import STRUCTURES, structured
from ...models.masks import Mask

# Co-prime with each other and unlike what anyone takes for an example.
BATCHES = (1, 2, 3)
LENGTHS = (1, 7, 17, 33)
OTHERS = (1, 5, 11, 20)
PATTERNS = ("ones", "right", "left", "holes", "mixed", "one token", "no token")
# The largest batch and the longest but one: enough to see a lost mask.
QUICK = Size(3, 17, 11)
# Beyond, a length meets these paddings alone, in one row: what is lost there is a window or a table's end.
LONG = 512
LONG_PATTERNS = ("ones", "holes")
MAX_LENGTH = 2048


class Choice(NamedTuple):
    """One value of every dimension of a case."""

    batch: int
    length: int
    other: int
    pattern: str
    structure: str | None


class Beyond(NamedTuple):
    """A length that matters to a model: what it is for, and why it is missed if it is not run."""

    length: int
    name: str
    why: str


@dataclass(frozen=True)
class Lengths:
    """Lengths that a model sets, and what is not run because it would be too long.

    Attributes
    ----------
    traced
        The example's.
    beyond
        Past the windows, and the largest that is allowed.
    """

    traced: int | None = None
    beyond: Sequence[Beyond] = ()


@dataclass(frozen=True)
class Plan:
    """The cases of a validation, in the order in which they are run.

    Attributes
    ----------
    choices
        The cheapest first.
    axes
        The names of the dimensions that are free, as the model has them, each with its values.
    not_run
        What is too long to be run.
    seed
        Of everything that is drawn.
    """

    choices: tuple[Choice, ...]
    axes: Mapping[str, tuple[Any, ...]]
    not_run: tuple[Beyond, ...]
    seed: int

    def __str__(self) -> str:
        values = "; ".join(f"{axis} {', '.join(map(str, tried))}" for axis, tried in self.axes.items())
        return f"{len(self.choices)} cases: {values or 'the sizes are fixed'}; seed {self.seed}"

    def to_json(self) -> dict[str, Any]:
        """Return it with JSON's types."""
        return {"cases": len(self.choices), "seed": self.seed, "axes": {a: list(v) for a, v in self.axes.items()}}

    def cases(self, layout: Layout, examples: Mapping[str, np.ndarray], masks: Sequence[Mask]) -> Iterator[Case]:
        """Draw the cases; one whose masks and sizes are another's is left out."""
        seen: set[tuple[Any, ...]] = set()
        for choice in self.choices:
            sizes = sizes_of(layout, Size(choice.batch, choice.length, choice.other))
            case = draw_case(layout, examples, masks, sizes, choice.pattern, self.seed, choice.structure)
            told = [name for name in (*layout.masks, *structured(masks)) if name in case.inputs]
            key = (*sizes.items(), *(case.inputs[name].tobytes() for name in told))
            if key not in seen:
                seen.add(key)
                yield case


def plan_of(layout: Layout, masks: Sequence[Mask], lengths: Lengths, quick: bool = False, seed: int = 0) -> Plan:
    """Choose the cases.

    Parameters
    ----------
    layout, masks
        Of the reference.
    lengths
        That it sets itself.
    quick
        Whether to try one size alone, with every padding pattern.
    seed
        Of everything that is drawn.
    """
    free_batch = isinstance(layout.batch, str)
    free_length = bool(layout.tokens) and isinstance(layout.tokens[0], str)
    other = bool(_others(layout))
    traced = (lengths.traced,) if lengths.traced and lengths.traced <= LONG else ()
    # A quick plan goes as far as its one size does.
    far = [one for one in lengths.beyond if free_length and one.length > (QUICK.length if quick else max(LENGTHS))]
    long = () if quick else tuple(dict.fromkeys(one.length for one in far if one.length <= MAX_LENGTH))
    medium = tuple(n for n in long if n <= LONG)
    dimensions: dict[str, tuple[Any, ...]] = {
        "batch": BATCHES if free_batch else BATCHES[:1],
        "length": tuple(sorted({*LENGTHS, *traced, *medium})) if free_length else LENGTHS[:1],
        "other": OTHERS if other else OTHERS[:1],
        "pattern": PATTERNS if layout.masks else PATTERNS[:1],
        "structure": STRUCTURES if any(name in layout.inputs for name in structured(masks)) else (None,),
    }
    if quick:
        dimensions |= {"batch": (QUICK.batch,), "length": (QUICK.length,), "other": (QUICK.other,)}
    every = [Choice(*values) for values in itertools.product(*dimensions.values())]
    chosen = _covering([choice for choice in every if choice.pattern in _distinct(choice)])
    chosen += [
        Choice(1, n, OTHERS[2], pattern, dimensions["structure"][0])
        for n in long
        if n > LONG
        for pattern in (LONG_PATTERNS if layout.masks else LONG_PATTERNS[:1])
    ]
    free = {
        "batch": free_batch,
        "length": free_length,
        "other": other,
        "pattern": bool(layout.masks),
        "structure": dimensions["structure"] != (None,),
    }
    tried = {kind: {getattr(choice, kind) for choice in chosen} for kind in dimensions}
    ordered = dimensions | {"length": sorted({*dimensions["length"], *long})}
    return Plan(
        tuple(sorted(chosen, key=_cost)),
        {_name(layout, kind): tuple(v for v in ordered[kind] if v in tried[kind]) for kind in free if free[kind]},
        tuple(one for one in far if one.length not in long),
        seed,
    )


def _others(layout: Layout) -> list[str]:
    """Return the free axes beside the batch and the first of tokens; a sum is set by its parts."""
    known = {layout.batch, *layout.tokens[:1], *(s.total for s in layout.sums)}
    return [label for label in layout.free if label not in known]


def _name(layout: Layout, kind: str) -> str:
    named = {"batch": layout.batch, "length": layout.tokens[0] if layout.tokens else None, "pattern": "mask"}
    if kind == "other":
        return ", ".join(_others(layout))
    return str(named.get(kind, kind))


def _distinct(choice: Choice) -> set[str]:
    """Return the patterns that are no other's equal at a size."""
    return set(padding_patterns(choice.batch, choice.length, np.random.default_rng(0)))


def _cost(choice: Choice) -> tuple[int, int, int]:
    tokens = choice.batch * choice.length
    return tokens + choice.batch * choice.other, PATTERNS.index(choice.pattern), choice.batch


def _covering(every: Sequence[Choice]) -> list[Choice]:
    """Return few choices in which all pairs of values that are found in `every` are found."""
    pairs = {choice: set(itertools.combinations(enumerate(choice), 2)) for choice in sorted(every, key=_cost)}
    missing = set().union(*pairs.values())
    chosen = []
    while missing:
        # Of those that bring as many pairs, the cheapest.
        best = max(pairs, key=lambda choice: len(pairs[choice] & missing))
        chosen.append(best)
        missing -= pairs[best]
    return chosen
