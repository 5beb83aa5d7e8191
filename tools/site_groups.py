"""The sites of a report in groups: by the mask that they share, and by all that is told of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..export.report import Report, SiteReport
from ..models.masks import Mask
from .shown import joined


@dataclass(frozen=True)
class MaskGroup:
    """One distinct mask: its label, and the sites that share it."""

    label: str
    mask: Mask
    sites: tuple[SiteReport, ...]

    @property
    def cross(self) -> bool:
        """Whether all of the sites attend another sequence."""
        return all(site.cross for site in self.sites)

    @property
    def nodes(self) -> dict[tuple[str, str], None]:
        """Names and operators of the nodes that the mask was read from."""
        return dict.fromkeys(node for site in self.sites for node in site.mask_nodes)


def by_mask(report: Report) -> list[MaskGroup]:
    """Return the distinct masks of a report, in order of first use."""
    groups: dict[Mask, list[SiteReport]] = {}
    for site in report.sites:
        groups.setdefault(site.mask, []).append(site)
    return [MaskGroup(_label(i), mask, tuple(sites)) for i, (mask, sites) in enumerate(groups.items())]


def _label(place: int) -> str:
    return chr(ord("A") + place) if place < 26 else f"M{place + 1}"


def by_facts(sites: Iterable[SiteReport]) -> list[tuple[str, list[SiteReport]]]:
    """Return the sites that are alike but for a number in their name, as one name with ranges of that number."""
    alike: dict[tuple[object, ...], list[SiteReport]] = {}
    for site in sites:
        facts = (site.form, heads(site), site.scale, notes(site), site.empty_rows, site.verified, site.note)
        alike.setdefault(facts, []).append(site)
    return [
        (name, [group[place] for place in places])
        for group in alike.values()
        for name, places in joined([site.name for site in group])
    ]


def heads(site: SiteReport) -> str:
    """Return the heads of queries and keys and their size: `8/2 x 64`."""
    queries, keys, size = ("?" if n is None else str(n) for n in (site.q_heads, site.kv_heads, site.head_size))
    return f"{queries if queries == keys else f'{queries}/{keys}'} x {size}"


def scale_is_plain(site: SiteReport) -> bool:
    """Return whether the scale is that of scaled dot-product attention, to the digits of half precision."""
    return bool(site.head_size) and math.isclose(site.scale * math.sqrt(site.head_size or 1), 1, rel_tol=1e-3)


def notes(site: SiteReport) -> tuple[tuple[str, str], ...]:
    """Return what a site has beside plain attention under a mask, as pairs of a word and a value."""
    found = [("cross", "attention")] if site.cross else []
    if site.bias is not None:
        found.append(("bias", site.bias))
    if not scale_is_plain(site):
        found.append(("scale", f"{site.scale:.4g}"))
    if site.softcap:
        found.append(("softcap", f"{site.softcap:.4g}"))
    if site.sink is not None:
        found.append(("sink", site.sink))
    found += [("assumes", f"{name} is {check}") for name, check in site.assumes]
    return tuple(found)
