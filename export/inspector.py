"""Find every attention of an ONNX model and read its mask back, whoever exported it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import onnx_ir.passes.common as passes

from ..models.masks import Causal, Full, Mask, Window
from .certificate.digest import is_as_checked
from .claimed import CHANGED, CLAIMED, Contradiction, beside, longest_of
from .errors import ExportError
from .sites_metadata import SITE_KEY, ClaimedSite, read_sites
from .symbolic.sites import Site, find_sites
from .symbolic.verify import verify

if TYPE_CHECKING:
    import onnx

__all__ = ["InspectError", "Report", "SiteReport", "UnliftedReport", "inspect"]


class InspectError(Exception):
    """A file that is no model, or a model that can't be read."""


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
        raise InspectError(f"{name} can't be read: {_first_line(error)}") from error
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


def load_model(model: Any) -> tuple[ir.Model, str]:
    """Load a model of any form, and say its name; an `ir.Model` is copied."""
    if isinstance(model, ir.Model):
        return model.clone(), model.graph.name or "model"
    if isinstance(model, bytes) or hasattr(model, "SerializeToString"):
        import onnx

        try:
            proto = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.ModelProto()
            if not isinstance(model, bytes):
                # onnx_ir names the tensors of constants where they are.
                proto.CopyFrom(model)
            return ir.from_proto(proto), proto.graph.name or "model"
        except Exception as error:
            raise InspectError(f"these bytes are no ONNX model: {_first_line(error)}") from error
    path = Path(model)
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no file"
        raise InspectError(f"{path} is {what}; give the path of an ONNX file")
    try:
        loaded = ir.load(path)
    except Exception as error:
        raise InspectError(f"{path} is no ONNX model: {_first_line(error)}") from error
    if not (loaded.graph.inputs or loaded.graph.outputs or len(loaded.graph)):
        raise InspectError(f"{path} is no ONNX model: it has no graph")
    _check_external_data(path, loaded)
    return loaded, path.name


def _check_external_data(path: Path, model: ir.Model) -> None:
    """Refuse data that isn't there, or that lies outside the model's folder."""
    folder = path.absolute().parent.resolve()
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            data = (folder / tensor.location).resolve()
            if not data.is_relative_to(folder):
                raise InspectError(
                    f"{path} has external data outside its folder, which is refused: {value.name!r} is in "
                    f"{str(tensor.location)!r}; put the data beside the model"
                )
            if not data.is_file():
                raise InspectError(
                    f"{path} misses its external data: {value.name!r} is in {str(tensor.location)!r}, which isn't "
                    "there; keep the model and its data in one folder"
                )


def _import_domains(graph: ir.Graph) -> None:
    """Import the domains that an optimizer used and forgot to import: without them no shape is inferred at all."""
    for node in graph.all_nodes():
        graph.opset_imports.setdefault(node.domain, 1)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


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
