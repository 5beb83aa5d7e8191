"""Make a mask simpler where the rows that count don't tell the difference.

| what goes | padding_rows | what proves it |
|---|---|---|
| a side of a window that reaches past every key | keep, any, zero | fixed lengths of the graph |
| the same | keep, any, zero | `length_le:N`, granted and recorded |
| a condition on queries alone | any, zero | rows that break it have no key |
| padding of keys that no real query sees: `window(0, 0) & padding(m)` | any, zero | a real query is a real key |
| padding beside causal | any, zero | right padding, granted and recorded |
| padding beside anti-causal | any, zero | left padding, granted and recorded |

A row counts if it has a key and, under any and zero, if its query is a real token. Nothing else is assumed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ...models.masks import Full, Mask, QueryPadding, Window
from .asked import Assumed, Lengths
from .facts import Fact, Grants, key_paddings, length_facts

__all__ = ["PADDING_ROWS", "Simplified", "simplify"]

PADDING_ROWS = ("keep", "any", "zero")
QUERY_ONLY = "query_padding("


@dataclass(frozen=True)
class Simplified:
    """A mask that gives the rows that count what the given one does.

    Attributes
    ----------
    mask : Mask
    assumes : tuple of Assumed
        What is taken for granted for that.
    why : tuple of str
        What went, and by which facts.
    """

    mask: Mask
    assumes: tuple[Assumed, ...] = ()
    why: tuple[str, ...] = ()


def simplify(
    mask: Mask, lengths: Lengths, tensors: Mapping[str, ir.Value], grants: Grants, padding_rows: str
) -> Simplified:
    """Drop the conjuncts of a mask that make no difference to a row that counts.

    Parameters
    ----------
    mask : Mask
    lengths : Lengths
        Of queries and keys.
    tensors : mapping of str to ir.Value
        The mask's tensors.
    grants : Grants
        What the user grants.
    padding_rows : {"keep", "any", "zero"}
        Which rows count.

    Raises
    ------
    ValueError
        If `padding_rows` is another word.
    """
    if padding_rows not in PADDING_ROWS:
        raise ValueError(f"padding_rows is one of {', '.join(PADDING_ROWS)}; got {padding_rows!r}")
    facts = list(length_facts(lengths))
    facts += grants.lengths(lengths, mask, tensors)
    if padding_rows != "keep":
        facts += _validity(mask, lengths)
        if not lengths.cross:
            facts += grants.padding(mask, tensors)
    parts = [side for conjunct in mask.conjuncts for side in _sides(conjunct)]
    used: dict[Assumed, None] = {}
    why: list[str] = []
    for part in _plainest_last(parts):
        rest = [other for other in parts if other is not part]
        proof = _proof(part, rest, facts)
        if proof is not None:
            parts = rest
            used.update({fact.assumed: None for fact in proof if fact.assumed is not None})
            if proof:
                why.append(f"{part} goes: {', '.join(fact.why for fact in proof)}")
    return Simplified(_all(parts).simplify(), tuple(used), tuple(why))


def _validity(mask: Mask, lengths: Lengths) -> list[Fact]:
    """Return what holds of every row that is a real token and has a key."""
    facts = [Fact(c, "rows without keys don't count") for c in mask.conjuncts if _of_queries(c)]
    if not lengths.cross:
        facts += [Fact(QueryPadding(*padding), "padding rows don't count") for padding in key_paddings(mask)]
    return facts


def _of_queries(mask: Mask) -> bool:
    return all(str(leaf).startswith(QUERY_ONLY) for leaf in mask.leaves)


def _sides(conjunct: Mask) -> list[Mask]:
    """Split a window into its two bounds."""
    left, right = conjunct.window
    if left >= 0 and right >= 0 and not conjunct.tensors and conjunct == Window(left, right):
        return [Window(left, -1), Window(-1, right)]
    return [conjunct]


def _plainest_last(parts: Sequence[Mask]) -> list[Mask]:
    """Return conjuncts with those first that need a tensor."""
    return sorted(parts, key=lambda part: not part.tensors)


def _proof(part: Mask, rest: Sequence[Mask], facts: Sequence[Fact]) -> tuple[Fact, ...] | None:
    """Return the fewest facts, free ones first, by which the rest implies a conjunct; None if they don't."""
    if not _all([*rest, *(fact.holds for fact in facts)]).implies(part):
        return None
    needed = list(facts)
    for fact in sorted(facts, key=lambda fact: fact.assumed is None):
        fewer = [other for other in needed if other is not fact]
        if _all([*rest, *(other.holds for other in fewer)]).implies(part):
            needed = fewer
    return tuple(needed)


def _all(masks: Iterable[Mask]) -> Mask:
    return functools.reduce(operator.and_, masks, Full())
