"""Names of a graph as people can read them: no control characters, no more than a line."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST = 60


def shown(name: str, longest: int = LONGEST) -> str:
    """Return a name with what can't be printed as escapes, and with its middle left out if it is long."""
    # Twice as much as is kept, so that a name of megabytes costs nothing.
    head, tail = (name, "") if len(name) <= 2 * longest else (name[:longest], name[-longest:])
    text = _printable(head) + _printable(tail)
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[: longest - 1 - half]}…{text[-half:]}"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def plural(count: int, what: str) -> str:
    """Return `3 sites` or `1 site`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def joined(names: Iterable[str]) -> list[tuple[str, list[int]]]:
    """Join the names that differ in one number: `layers.0-2.attn`, with the places of the names that it stands for.

    Which number that is, is told by the names that are alike but for their numbers: the first that is not the same.
    """
    split = [re.split(r"(\d+)", name) for name in names]
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for parts in split:
        alike.setdefault(tuple(parts[::2]), []).append(parts)
    groups: dict[tuple[str, ...], list[int]] = {}
    varying: dict[tuple[str, ...], int] = {}
    for place, parts in enumerate(split):
        others = alike[tuple(parts[::2])]
        at = next((i for i in range(1, len(parts), 2) if any(other[i] != parts[i] for other in others)), 0)
        key = (*parts[:at], "\0", *parts[at + 1 :]) if at else tuple(parts)
        groups.setdefault(key, []).append(place)
        varying[key] = at
    result = []
    for key, places in groups.items():
        at, parts = varying[key], list(key)
        if at:
            parts[at] = ranges([int(split[place][at]) for place in places])
        result.append(("".join(parts), places))
    return result


MOST_RANGES = 6


def ranges(numbers: list[int]) -> str:
    """Write numbers as ranges: `0-2,5`; many as the first and the last."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in runs]
    if len(texts) > MOST_RANGES:
        texts = [*texts[:3], "…", texts[-1]]
    return ",".join(texts)
