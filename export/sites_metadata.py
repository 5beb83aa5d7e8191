"""What a file claims of its own attention (``maskport.sites``): the source's masks, and what computes each now.

A packed form has no mask that could be read back, so the file says whose it is. A claim is shown as one until it is
verified. Which node computes a site is told by the node's own metadata, ``maskport.site``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_type_hints

import onnx_ir as ir

from ..models.masks import Mask
from .errors import ExportError

if TYPE_CHECKING:
    from .report import SiteReport

__all__ = ["SITES_KEY", "SITE_KEY", "ClaimedSite", "claim", "read_sites", "write_sites"]

SITES_KEY, SITE_KEY = "maskport.sites", "maskport.site"
VERSION = 1


@dataclass(frozen=True)
class ClaimedSite:
    """One attention as the file claims it; the fields are those of a site of `inspect`.

    Attributes
    ----------
    mask : Mask
        The source's.
    form : str
        What the source had: "decomposed" or an operator.
    kernel : str
        The operator that computes it in this file.
    """

    name: str
    mask: Mask
    form: str
    kernel: str
    q_heads: int | None
    kv_heads: int | None
    head_size: int | None
    scale: float
    softcap: float
    sink: str | None
    cross: bool
    bias: str | None
    empty_rows: str


def claim(site: SiteReport, kernel: str | None = None) -> ClaimedSite:
    """Return what a file claims of a site that was read from its source; `kernel` is what became of it."""
    given = {field.name: getattr(site, field.name) for field in fields(ClaimedSite) if field.name != "kernel"}
    return ClaimedSite(kernel=kernel or site.form, **given)


def write_sites(model: ir.Model, sites: Iterable[ClaimedSite]) -> None:
    """Write the claims into a model's metadata, in the order given."""
    entries = [{**vars(site), "mask": str(site.mask)} for site in sites]
    model.metadata_props[SITES_KEY] = json.dumps({"version": VERSION, "sites": entries})


def read_sites(metadata: Mapping[str, str]) -> dict[str, ClaimedSite]:
    """Return what a file claims, by the site's name.

    Raises
    ------
    ExportError
        If the metadata is damaged or of another version.
    """
    if SITES_KEY not in metadata:
        return {}
    try:
        written: dict[str, Any] = json.loads(metadata[SITES_KEY])
        version = written["version"]
        if version != VERSION:
            raise ExportError(
                f"the file's {SITES_KEY} has version {version}, this Maskport reads version {VERSION}; update Maskport"
            )
        return {entry["name"]: _site(entry) for entry in written["sites"]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ExportError(f"the file's {SITES_KEY} is damaged: {error!r}; make the file again") from error


def _site(entry: Mapping[str, Any]) -> ClaimedSite:
    values = {**entry, "mask": Mask.parse(entry["mask"])}
    values = {name: values[name] for name in _TYPES}
    for name, expected in _TYPES.items():
        if not isinstance(values[name], expected | int if expected is float else expected):
            raise TypeError(f"{name} is {values[name]!r}")
    return ClaimedSite(**values)


_TYPES = get_type_hints(ClaimedSite)
