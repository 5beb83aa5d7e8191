"""What the attention of two models differs in: by meaning, not by node."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from ..export.inspector import inspect
from ..export.report import Report, SiteReport
from ..models.masks import Mask, Witness

__all__ = ["Diff", "MaskChange", "SiteDiff", "diff"]

# Facts of a site that are compared, beside its mask. Half precision keeps three digits of a number.
FACTS = ("q_heads", "kv_heads", "head_size", "scale", "softcap", "sink", "bias", "cross")
DIGITS = 1e-3


@dataclass(frozen=True)
class MaskChange:
    """Two masks of one site that do not mean the same.

    Attributes
    ----------
    old, new : Mask
        The masks.
    witness : Witness or None
        The smallest point where they differ, at `k_len == q_len + past` unless the site is cross attention or they
        are the same there; None where the two can't be compared.
    renamed : dict of str
        New names of tensors by their old names, if that is all that changed.
    why : str or None
        Why the two can't be compared.
    """

    old: Mask
    new: Mask
    witness: Witness | None
    renamed: dict[str, str]
    why: str | None = None


@dataclass(frozen=True)
class SiteDiff:
    """One site in both models, and what is not the same: `facts` by name, as pairs of old and new."""

    old: SiteReport
    new: SiteReport
    facts: dict[str, tuple[Any, Any]]
    mask: MaskChange | None

    @property
    def changed(self) -> bool:
        """Whether anything is not the same."""
        return bool(self.facts) or self.mask is not None


@dataclass(frozen=True)
class Diff:
    """What the attention of two models differs in.

    Attributes
    ----------
    old, new : Report
        What was found in each.
    sites : tuple of SiteDiff
        The sites that both have.
    removed, added : tuple of SiteReport
        The sites that one has alone.
    """

    old: Report
    new: Report
    sites: tuple[SiteDiff, ...]
    removed: tuple[SiteReport, ...]
    added: tuple[SiteReport, ...]

    @property
    def changed(self) -> bool:
        """Whether any site is not the same, or more attention is not understood than before."""
        before, after = self.not_compared
        return bool(self.removed or self.added or after > before) or any(site.changed for site in self.sites)

    @property
    def not_compared(self) -> tuple[int, int]:
        """How much attention of each model was not understood."""
        before, after = (sum(u.attention for u in report.unlifted) for report in (self.old, self.new))
        return before, after

    def to_json(self) -> dict[str, Any]:
        """Return the same as a dict of JSON's types."""
        before, after = self.not_compared
        return {
            "format": 1,
            "old": self.old.model,
            "new": self.new.model,
            "changed": self.changed,
            "sites": [_site_json(site) for site in self.sites if site.changed],
            "same": sum(not site.changed for site in self.sites),
            "removed": [site.name for site in self.removed],
            "added": [site.name for site in self.added],
            "not_compared": {"old": before, "new": after},
        }


def diff(old: Any, new: Any) -> Diff:
    """Compare the attention of two models by what it means.

    Sites are matched by name, where the names tell places (`layers.0.self_attn`), else by their place in the graph
    and their shape. Masks are the same if they attend the same pairs at all lengths and for all tensors; a tensor with
    another name is a difference.

    Parameters
    ----------
    old, new : path, bytes, onnx.ModelProto, onnx_ir.Model or Report
        The models, or what `inspect` found in them.

    Raises
    ------
    InspectError
        If one is no ONNX model.

    Examples
    --------
    >>> from maskport.tools import diff
    >>> diff("old.onnx", "new.onnx").changed  # doctest: +SKIP
    False
    """
    before, after = (model if isinstance(model, Report) else inspect(model) for model in (old, new))
    pairs, removed, added = _match(before.sites, after.sites)
    sites = tuple(SiteDiff(a, b, _facts(a, b), _masks(a, b)) for a, b in pairs)
    return Diff(before, after, sites, tuple(removed), tuple(added))


# A name that an exporter counts up, such as node_softmax_3, shifts with any node before it.
_COUNTED = re.compile(r"[^./]*\d*")


def _match(
    old: Sequence[SiteReport], new: Sequence[SiteReport]
) -> tuple[list[tuple[SiteReport, SiteReport]], list[SiteReport], list[SiteReport]]:
    """Return the pairs in the order of the new sites, and what is left of both."""
    same_names = {site.name for site in old} == {site.name for site in new}
    by_name = {site.name: site for site in old if same_names or not _COUNTED.fullmatch(site.name)}
    pairs = {site.name: (by_name[site.name], site) for site in new if site.name in by_name}
    taken = {site.name for site, _ in pairs.values()}
    ours = [site for site in old if site.name not in taken]
    theirs = [site for site in new if site.name not in pairs]
    removed, added = [], []
    blocks = SequenceMatcher(None, [*map(_shape, ours)], [*map(_shape, theirs)], autojunk=False).get_opcodes()
    for _, a, a_end, b, b_end in blocks:
        count = min(a_end - a, b_end - b)
        pairs |= {site.name: (ours[a + i], site) for i, site in enumerate(theirs[b : b + count])}
        removed += ours[a + count : a_end]
        added += theirs[b + count : b_end]
    return [pairs[site.name] for site in new if site.name in pairs], removed, added


def _shape(site: SiteReport) -> tuple[object, ...]:
    return site.cross, site.q_heads, site.head_size


def _facts(old: SiteReport, new: SiteReport) -> dict[str, tuple[Any, Any]]:
    pairs = {name: (getattr(old, name), getattr(new, name)) for name in FACTS}
    return {name: pair for name, pair in pairs.items() if not _alike(*pair)}


def _alike(old: Any, new: Any) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=DIGITS)
    return bool(old == new)


def _masks(old: SiteReport, new: SiteReport) -> MaskChange | None:
    a, b = old.mask, new.mask
    theirs = b.tensors
    shapes = [
        f"{name} is {spec.shape} in the old and {theirs[name].shape} in the new model"
        for name, spec in a.tensors.items()
        if name in theirs and theirs[name].shape != spec.shape
    ]
    if shapes:
        return MaskChange(a, b, None, {}, "; ".join(shapes))
    try:
        if a == b:
            return None
        if _is_large(a, b):
            return MaskChange(a, b, None, _renamed(a, b), "a bound is too far for tensors that show the difference")
        witness = None if old.cross or new.cross else a.witness(b, self_attention=True)
        return MaskChange(a, b, witness or a.witness(b), _renamed(a, b))
    except ValueError as error:
        return MaskChange(a, b, None, {}, str(error))


# Lengths of a witness, and of one with a tensor of all pairs, that may have to be held in memory.
FARTHEST, FARTHEST_OF_PAIRS = 2**20, 2**13


def _is_large(*masks: Mask) -> bool:
    farthest = max((side for mask in masks for leaf in mask.leaves for side in leaf.window), default=0)
    rank = max((spec.rank for mask in masks for spec in mask.tensors.values()), default=0)
    return rank > 0 and farthest > (FARTHEST if rank <= 2 else FARTHEST_OF_PAIRS)


MOST_RENAMED = 3


def _renamed(old: Mask, new: Mask) -> dict[str, str]:
    """Return new names by old ones if the masks are the same but for them, else nothing."""
    gone = [name for name in old.tensors if name not in new.tensors]
    come = [name for name in new.tensors if name not in old.tensors]
    if len(gone) == len(come) <= MOST_RENAMED:
        for order in itertools.permutations(come):
            names = dict(zip(gone, order, strict=True))
            if all(old.tensors[a].shape == new.tensors[b].shape for a, b in names.items()) and old.rename(names) == new:
                return names
    return {}


def _site_json(site: SiteDiff) -> dict[str, Any]:
    return {
        "name": site.new.name,
        "old_name": site.old.name,
        "facts": {name: {"old": old, "new": new} for name, (old, new) in site.facts.items()},
        "mask": None if site.mask is None else _mask_json(site.mask),
    }


# Tensors of a witness at the end of a long window are left out.
MOST_ELEMENTS = 4096


def _mask_json(change: MaskChange) -> dict[str, Any]:
    witness = change.witness
    point = None
    if witness is not None:
        small = sum(tensor.size for tensor in witness.tensors.values()) <= MOST_ELEMENTS
        tensors = {name: tensor.tolist() for name, tensor in witness.tensors.items()} if small else None
        point = {**witness.sizes._asdict(), "b": witness.b, "h": witness.h, "q": witness.q, "k": witness.k}
        point |= {"attends": _attends(change.new, witness), "tensors": tensors}
    return {
        "old": str(change.old),
        "new": str(change.new),
        "witness": point,
        "renamed": change.renamed,
        "why": change.why,
    }


def _attends(mask: Mask, witness: Witness) -> bool:
    tensors = {name: witness.tensors[name] for name in mask.tensors}
    q_len, k_len, past = witness.sizes
    return bool(mask.at([witness.q], [witness.k], q_len, k_len, past, **tensors).item())
