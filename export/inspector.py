"""Find every attention of an ONNX model and read its mask back, whoever exported it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx_ir as ir
import onnx_ir.passes.common as passes

from .certificate.digest import is_as_checked
from .claimed import CHANGED, Contradiction, beside, longest_of
from .errors import ExportError, InspectError, first_line
from .load_model import load_model
from .report import CLAIMED, Report, SiteReport, UnliftedReport
from .sites_metadata import SITE_KEY, ClaimedSite, read_sites
from .symbolic.sites import Site, find_sites
from .symbolic.verify import verify

if TYPE_CHECKING:
    import onnx

__all__ = ["InspectError", "Report", "SiteReport", "UnliftedReport", "inspect"]


def inspect(model: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model, *, check: bool = True) -> Report:
    """Find every attention of a model and read its mask back.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or onnx_ir.Model
        By any exporter. It is not changed.
    check : bool
        Whether to run each mask's subgraph against the lifted mask. A mask that disagrees is not reported as one.

    Returns
    -------
    Report

    Raises
    ------
    InspectError
        If it is no ONNX model.

    Examples
    --------
    >>> from maskport.export import inspect
    >>> report = inspect("model.onnx")  # doctest: +SKIP
    >>> report.sites[0].mask  # doctest: +SKIP
    Causal() & KeyPadding('attention_mask')
    """
    loaded, name = load_model(model)
    found = find_claimed(loaded, name, check=check)
    return Report(name, tuple(found.reports.values()), tuple(found.reasons.values()))


@dataclass(frozen=True)
class Attention:
    """What was read of a model's attention, by the nodes that are in the middle of it.

    Attributes
    ----------
    sites : tuple of Site
        In the graph's order; none whose mask was found wrong.
    names : dict
        A name for each site, by its module where the file says so; each name once.
    reports, reasons : dict
        What is known of a site, and why what looked like one is none.
    """

    sites: tuple[Site, ...]
    names: dict[ir.Node, str]
    reports: dict[ir.Node, SiteReport]
    reasons: dict[ir.Node, UnliftedReport]


def find_claimed(model: ir.Model, name: str = "the model", *, check: bool = True) -> Attention:
    """Do as :func:`find_attention`, and take what the file claims where less can be read; reports in the graph's order.

    Raises
    ------
    InspectError
        If its graph or its claims can't be read.
    """
    found = find_attention(model, name, check=check)
    try:
        claims = read_sites(model.metadata_props)
    except ExportError as error:
        raise InspectError(f"{name} can't be read: {error}") from error
    reports, reasons = dict(found.reports), dict(found.reasons)
    _add_claims(model, claims, reports, reasons)
    places = {node: place for place, node in enumerate(model.graph.all_nodes())}
    in_order = sorted(reports, key=places.__getitem__)
    return replace(found, reports={node: reports[node] for node in in_order}, reasons=reasons)


def find_attention(model: ir.Model, name: str = "the model", *, check: bool = True) -> Attention:
    """Find the attention of a model that is loaded; its functions are inlined and its shapes inferred, in place.

    Raises
    ------
    InspectError
        If its graph can't be read.
    """
    try:
        passes.InlinePass()(model)
        _import_domains(model.graph)
        passes.ShapeInferencePass()(model)
    except Exception as error:
        raise InspectError(f"{name} can't be read: {first_line(error)}") from error
    sites, unlifted = find_sites(model.graph)
    names = _names(sites)
    places = {node: place for place, node in enumerate(model.graph)}
    reasons = {u.node: UnliftedReport(str(u.node.name), u.reason, u.attention, u.fault) for u in unlifted}
    reports: dict[ir.Node, SiteReport] = {}
    for site in sites:
        note = verify(site.interpreter, site) if check else "not run"
        if note is not None and not note.startswith("not run"):
            reasons[site.node] = UnliftedReport(str(site.node.name), f"the mask read from it is wrong: {note}")
            continue
        nodes = sorted(_mask_nodes(site), key=places.__getitem__)
        reports[site.node] = _report(site, names[site.node], note, nodes)
    return Attention(tuple(site for site in sites if site.node in reports), names, reports, reasons)


def _add_claims(
    model: ir.Model,
    claims: Mapping[str, ClaimedSite],
    reports: dict[ir.Node, SiteReport],
    reasons: dict[ir.Node, UnliftedReport],
) -> None:
    """Replace what was read of nodes that compute a claimed site, where it says less than the claim."""
    inputs = {str(value.name) for value in model.graph.inputs}
    as_checked: bool | None = None
    computing: dict[str, list[ir.Node]] = {}
    for node in model.graph.all_nodes():
        if node.metadata_props.get(SITE_KEY) in claims:
            computing.setdefault(node.metadata_props[SITE_KEY], []).append(node)
    for name, nodes in computing.items():
        claimed = claims[name]
        attention = [node for node in nodes if node in reports or node in reasons]
        if any(reasons[node].fault for node in attention if node in reasons):
            # It was read far enough to know that it is wrong, whatever is claimed.
            continue
        note, shown = CLAIMED, False
        # What is nested is run on some rows of a batch, and is not read.
        nested = any(node.graph is not model.graph for node in nodes)
        if len(attention) == 1 and attention[0] in reports and not nested:
            read = reports[attention[0]]
            found = beside(read, claimed, inputs, longest_of(model))
            if found is None:
                # Values inside the graph have other names than the source's.
                bias, sink = read.bias and (claimed.bias or read.bias), read.sink and (claimed.sink or read.sink)
                reports[attention[0]] = replace(read, name=name, bias=bias, sink=sink)
                continue
            if isinstance(found, Contradiction):
                reasons[attention[0]] = UnliftedReport(str(attention[0].name), found.why, fault="claim")
                continue
            note, shown = found.note, found.shown
        as_checked = is_as_checked(model) if as_checked is None and not shown else as_checked
        if not shown and not as_checked:
            _disbelieve(claimed, attention or nodes[-1:], reports, reasons)
            continue
        for node in attention:
            reports.pop(node, None)
            reasons.pop(node, None)
        node = next(iter(attention), nodes[-1])
        facts = {fact: value for fact, value in vars(claimed).items() if fact != "kernel"}
        facts |= {"form": claimed.kernel, "node": str(node.name)}
        reports[node] = SiteReport(**facts, assumes=(), verified=False, note=note)


def _disbelieve(
    claimed: ClaimedSite,
    nodes: Sequence[ir.Node],
    reports: Mapping[ir.Node, SiteReport],
    reasons: dict[ir.Node, UnliftedReport],
) -> None:
    """Say of nodes that were not read that what the file claims of them is not believed."""
    for node in nodes:
        if node not in reports:
            why = f"{reasons[node].reason}; " if node in reasons else ""
            told = f"{why}{CHANGED.format(mask=claimed.mask)}"
            reasons[node] = UnliftedReport(str(node.name), told, attention=True)


def _report(site: Site, name: str, note: str | None, nodes: list[ir.Node]) -> SiteReport:
    return SiteReport(
        name,
        str(site.node.name),
        site.form,
        site.q_heads,
        site.kv_heads,
        site.head_size,
        site.scale,
        site.softcap,
        site.sink,
        site.cross,
        site.mask,
        site.bias,
        site.empty_rows,
        site.assumes,
        note is None,
        note,
        tuple((str(node.name), node.op_type) for node in nodes),
    )


def _mask_nodes(site: Site) -> set[ir.Node]:
    """Return the nodes that compute the values which mask."""
    found: set[ir.Node] = set()
    waiting = list(site.mask_values)
    while waiting:
        node = waiting.pop().producer()
        if node is not None and node not in found:
            found.add(node)
            # A shape is all that comes of what is before it.
            if node.op_type not in ("Shape", "Size"):
                waiting += [value for value in node.inputs if value is not None]
    return found


def _import_domains(graph: ir.Graph) -> None:
    """Import the domains that an optimizer used and forgot to import: without them no shape is inferred at all."""
    for node in graph.all_nodes():
        graph.opset_imports.setdefault(node.domain, 1)


# Where exporters write the module that a node came from, as the last entry of a list.
_SCOPES = ("pkg.torch.onnx.name_scopes",)


def _names(sites: Iterable[Site]) -> dict[ir.Node, str]:
    """Name each site by its module, or its node; every name once."""
    names: dict[ir.Node, str] = {}
    for site in sites:
        name = site.node.metadata_props.get(SITE_KEY)
        name = name or next((_module(site.node, key) for key in _SCOPES if key in site.node.metadata_props), None)
        name = name or str(site.node.name)
        taken = set(names.values())
        number = 1
        unique = name
        while unique in taken:
            number += 1
            unique = f"{name}#{number}"
        names[site.node] = unique
    return names


def _module(node: ir.Node, key: str) -> str | None:
    scopes = [scope.strip(" '\"") for scope in node.metadata_props[key].strip("[]").split(",")]
    return scopes[-2] if len(scopes) > 1 and scopes[-2] else None
