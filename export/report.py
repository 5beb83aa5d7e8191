"""What is told of a model's attention: each site, its mask, and what was not understood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..models.masks import Causal, Full, Mask, Window

__all__ = ["CLAIMED", "Report", "SiteReport", "UnliftedReport", "describe_mask"]


CLAIMED = "claimed by the file"


@dataclass(frozen=True)
class SiteReport:
    """One attention and what its mask means.

    Attributes
    ----------
    name : str
        The module that it came from where the file says so, else its node's name.
    node, form : str
        The Softmax or operator, and "decomposed" or the operator's domain and name.
    q_heads, kv_heads, head_size : int or None
        None where the graph leaves it open.
    scale, softcap : float
        Factor of the scores, and their bound or 0.
    sink, bias : str or None
        Scores of a key without value; what is added to the scores.
    cross : bool
        Whether keys come from another sequence.
    mask : Mask
        Which keys a query attends.
    empty_rows : str
        What a row without keys gives: "zero", "mean", "nan" or "unknown".
    assumes : tuple of (str, str)
        Pairs of a tensor and a check under which the mask is exact.
    verified : bool
        Whether the mask's subgraph was run and agreed; else `note` says why not: what can't be read from the graph is
        what the file claims of it.
    mask_nodes : tuple of (str, str)
        Names and operators of the nodes that compute the mask, in the graph's order.
    """

    name: str
    node: str
    form: str
    q_heads: int | None
    kv_heads: int | None
    head_size: int | None
    scale: float
    softcap: float
    sink: str | None
    cross: bool
    mask: Mask
    bias: str | None
    empty_rows: str
    assumes: tuple[tuple[str, str], ...]
    verified: bool
    note: str | None = None
    mask_nodes: tuple[tuple[str, str], ...] = ()

    @property
    def claimed(self) -> bool:
        """Whether the mask is what the file claims, and not what was read of its graph."""
        return (self.note or "").startswith(CLAIMED)

    def to_json(self) -> dict[str, Any]:
        """Return the site as in `maskport inspect --json`."""
        fields = {name: getattr(self, name) for name in _PLAIN}
        assumes = [{"input": name, "check": check} for name, check in self.assumes]
        return fields | {"mask": describe_mask(self.mask), "assumes": assumes}


_PLAIN = (
    "name",
    "node",
    "form",
    "q_heads",
    "kv_heads",
    "head_size",
    "scale",
    "softcap",
    "sink",
    "cross",
    "bias",
    "empty_rows",
    "verified",
)


@dataclass(frozen=True)
class UnliftedReport:
    """What looked like attention and was not understood, and why.

    `attention` is false for what is none. `fault` is set for what is known to go wrong: scores that are "multiplied"
    by a mask, scores that become "nan", a fill that is too "weak", a "claim" that is not true.
    """

    node: str
    reason: str
    attention: bool = True
    fault: str | None = None


@dataclass(frozen=True)
class Report:
    """The attention of a model.

    Attributes
    ----------
    model : str
        The file's name.
    sites : tuple of SiteReport
        In the graph's order.
    unlifted : tuple of UnliftedReport
        What was not understood.
    """

    model: str
    sites: tuple[SiteReport, ...]
    unlifted: tuple[UnliftedReport, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as `maskport inspect --json` prints it."""
        return {
            "format": 1,
            "model": self.model,
            "sites": [site.to_json() for site in self.sites],
            "unlifted": [{"node": u.node, "reason": u.reason} for u in self.unlifted],
        }


def describe_mask(mask: Mask) -> dict[str, Any]:
    """Return a mask as JSON: its text, and the plain facts that the whole mask implies.

    `exact` is false where the text says more than the facts do.
    """
    left, right = mask.window
    implied = [leaf for leaf in mask.leaves if mask.implies(leaf)]
    named = {
        kind: [name for leaf in implied if str(leaf).startswith(f"{kind}(") for name in leaf.tensors]
        for kind in ("padding", "segments", "dense")
    }
    facts = Full() if (left, right) == (-1, -1) else Window(left, right)
    for leaf in implied:
        if str(leaf).startswith(("padding(", "segments(", "dense(")):
            facts = facts & leaf
    return {
        "text": str(mask),
        "exact": facts == mask,
        "causal": mask.implies(Causal()),
        "left": left,
        "right": right,
        **{kind: list(dict.fromkeys(names)) for kind, names in named.items()},
    }
