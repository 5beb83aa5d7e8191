"""What is promised of a model's attention: which keys each query may attend, on which token axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...export.cases.layout import Label, Layout
from ...export.report import Report
from ...export.symbolic import terms as t
from ...export.symbolic.sites import Site
from ...models.masks import Causal, Full, KeyPadding, Mask, Window


@dataclass(frozen=True)
class Claim:
    """One attention.

    Attributes
    ----------
    name
        Of the attention.
    mask
        Which keys a query may attend.
    queries, keys
        Labels of the token axes that they lie on; None where it isn't known.
    empty_rows
        What a row without keys gives: ``zero``, ``mean``, ``nan`` or ``unknown``.
    known
        Whether its queries do attend what the mask lets them; else nobody knows what is attended.
    """

    name: str
    mask: Mask
    queries: Label
    keys: Label
    empty_rows: str = "unknown"
    known: bool = True


def _conjuncts(mask: Mask, *kinds: str) -> Mask:
    found = Full()
    for conjunct in mask.conjuncts:
        if str(conjunct).startswith(kinds):
            found = found & conjunct
    return found


def _causal(mask: Mask) -> Mask:
    return Causal() if mask.implies(Causal()) else Full()


def _window(mask: Mask) -> Mask:
    left, right = mask.window
    # What is causal alone is no window.
    return Full() if left < 0 and right <= 0 else Window(left, right)


# Contracts on single tokens: the part of a mask that each holds a model to. What is asked of all of it comes last.
FAMILIES: dict[str, Callable[[Mask], Mask]] = {
    "padding-invariance": lambda mask: _conjuncts(mask, "padding(", "prefix("),
    "causality": _causal,
    "window": _window,
    "segments": lambda mask: _conjuncts(mask, "segments("),
    "mask": lambda mask: mask,
}
# What a model has none of, if nothing is asked of it.
NOTHING = {
    "padding-invariance": "the model has no padding mask",
    "causality": "no attention is causal",
    "window": "the model has no window",
    "segments": "the model has no segments",
    "mask": "every token may reach every other",
}


def claims_of(report: Report, sites: Sequence[Site], layout: Layout) -> list[Claim]:
    """Return the claims of what was read from a file, in the graph's order.

    An attention over something else than tokens, such as heads, claims nothing. One that was not understood may attend
    everything, and where there is none at all, so may whatever else mixes tokens.
    """
    by_node = {str(site.node.name): site for site in sites}
    claims = []
    for found in report.sites:
        site = by_node.get(found.node)
        axes = _axes(site, layout) if site is not None else (_only(layout), _only(layout))
        if axes is not None:
            claims.append(Claim(found.name, found.mask, *axes, found.empty_rows))
    open_ = [found.node for found in report.unlifted if found.attention]
    if not claims:
        open_.append("the model")
    pairs = list(itertools.product(layout.tokens, repeat=2))
    return claims + [Claim(name, Full(), queries, keys, known=False) for name in open_ for queries, keys in pairs]


def with_inputs(claims: Sequence[Claim], layout: Layout) -> list[Claim]:
    """Return the claims with the padding that the inputs themselves declare: a mask that hides keys does.

    A mask that attends padding alone, as one that was inverted does, gives way to what its input declares.
    """
    declared = list(claims)
    for name, label in layout.masks.items():
        padding = KeyPadding(name, pad=layout.inputs[name].pad or 0)
        declared = [replace(c, mask=_joined(c.mask, padding)) if c.keys == label else c for c in declared]
    return declared


def _joined(mask: Mask, padding: Mask) -> Mask:
    try:
        both = mask & padding
    except ValueError:
        # The mask reads the same tensor in another shape: what it declares as a row of keys isn't known.
        return mask
    return padding if both == ~Full() else both


def _only(layout: Layout) -> Label:
    return layout.tokens[0] if len(layout.tokens) == 1 else None


def _axes(site: Site, layout: Layout) -> tuple[Label, Label] | None:
    """Return the token axes of an attention, None for one that is over no tokens."""
    lengths = (site.axes.q_len, site.axes.k_len)
    names = [length.args[0] if length.op == "symbol" else t.fixed(length) for length in lengths]
    if all(isinstance(name, int) and name not in layout.tokens for name in names):
        return None
    if len(layout.tokens) == 1 and not layout.sums:
        return layout.tokens[0], layout.tokens[0]
    totals = {new: total for total, _, new in layout.sums}
    queries, keys = (name if name in layout.tokens else None for name in names)
    # The keys of a cache and of the queries have no name of their own.
    return queries, totals.get(queries) if keys is None else keys
