"""From a model that is understood to a fast one that does the same, and the proof of it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir
import onnx_ir.passes.common as passes

from . import repairs
from .check.checked import ASSUMES_KEY, CERTIFICATE_KEY, METADATA_VERSION
from .errors import OptimizeError
from .files import prepare, save
from .inspector import SiteReport, find_attention, load_model
from .lowering.canonical import canonicalize
from .lowering.lower import Lowered, lower
from .lowering.targets import Target, TargetError
from .opset import raise_opset
from .optimized import Optimized, OptimizedSite
from .packing import group_segments, pack, padding_masks, zero_padding
from .packing.exits import Refused
from .passes import MergeProjectionsPass, UniqueNamesPass, clean
from .precision import to_precision
from .proof import prove
from .sites_metadata import claim, read_sites, write_sites

__all__ = ["PACKINGS", "PADDING_ROWS", "optimize"]

PADDING_ROWS = ("any", "zero", "keep")
PACKINGS = ("auto", "graph", "host", "none")
# The operator set of the newest attention operator that is written.
OPSET = 24
HALF = ("float16", "bfloat16")


def optimize(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    target: str = "cpu",
    dtype: str | None = None,
    padding_rows: str = "any",
    assume: Collection[str] = (),
    repair: Collection[str] = (),
    packing: str = "auto",
    check: bool = True,
) -> Optimized:
    """Rewrite the attention of a model to the fastest form that keeps what its masks mean.

    Source and result are run side by side, over sizes and padding patterns, before anything is written.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto or onnx_ir.Model
        By any exporter. It is not changed.
    path : path, optional
        Where the result is written.
    target : str
        "cpu", "cuda" (what runs from sm75 on), or "cuda:sm75" to "cuda:sm120".
    dtype : str, optional
        Element type to convert to: "float32", "float16", or on CUDA "bfloat16". None leaves it.
    padding_rows : {"any", "zero", "keep"}
        What rows that are no real token become: finite, exactly zero, or what the source gives.
    assume : collection of str
        Facts that the graph can't prove and the caller grants: "right-padding", "left-padding", "length_le:N". They
        are written into the file, and Session checks them at every run.
    repair : collection of str
        Repairs to apply, by name; `maskport.export.repairs.offered` tells which would do something.
    packing : {"auto", "graph", "host", "none"}
        Whether padding is left out of the computation, and whether its indices are computed in the graph or given by
        the caller.
    check : bool
        Whether to prove the result; without it nothing is known of it.

    Returns
    -------
    Optimized

    Raises
    ------
    OptimizeError
        If it can't be done as asked.
    ProofFailed
        If the result would not do what the source does; nothing is written.
    InspectError
        If it is no ONNX model.
    """
    for name, value, known in (("padding_rows", padding_rows, PADDING_ROWS), ("packing", packing, PACKINGS)):
        if value not in known:
            raise OptimizeError(f"{name} is {value!r}; give one of {', '.join(known)}")
    try:
        wanted = Target.parse(target, dtype)
    except TargetError as error:
        raise OptimizeError(str(error)) from error
    source, _ = load_model(model)
    destination = Path(path) if path is not None else None
    if destination is not None:
        prepare(destination)
    made = _already(source, target, padding_rows) or _optimize(
        source, wanted, padding_rows, tuple(assume), tuple(repair), packing, check
    )
    if destination is not None:
        save(made.model, destination)
    return made.at(destination)


def _already(source: ir.Model, target: str, padding_rows: str) -> Optimized | None:
    """Return a file that was optimized before as it is."""
    made = json.loads(source.metadata_props.get(CERTIFICATE_KEY, "{}")).get("optimized")
    if made is None:
        return None
    sites = [
        OptimizedSite(site.name, str(site.mask), site.form, site.kernel, "it was optimized before", {})
        for site in read_sites(source.metadata_props).values()
    ]
    asked = {"target": target, "padding_rows": padding_rows}
    notes = ["the file was optimized before, and is left as it is"]
    if any(made.get(name) != value for name, value in asked.items()):
        was = ", ".join(f"{name} {value}" for name, value in made.items())
        notes = [f"the file was optimized before ({was}), and is left as it is: optimize its source instead"]
    return Optimized.unchanged(source, target, padding_rows, sites, notes)


def _optimize(
    source: ir.Model,
    target: Target,
    padding_rows: str,
    assume: Sequence[str],
    repair: Sequence[str],
    packing: str,
    check: bool,
) -> Optimized:
    work = source.clone()
    passes_: list[tuple[str, int]] = []
    notes: list[str] = []
    if repair:
        passes_ += [(f"repair {name}", number) for name, number in repairs.apply(work, repair).items()]
    passes.InlinePass()(work)
    if (reason := raise_opset(work, OPSET)) is not None:
        notes.append(f"the operator set stays {work.opset_imports.get('', 0)}: {reason}")
    attention = find_attention(work)
    reports = {report.name: report for report in attention.reports.values()}
    _, refused = canonicalize(work, attention.sites, attention.names)
    notes += [f"{name} is left as it is: {reason}" for name, reason in refused.items()]
    notes += [
        f"{found.node} is left as it is: {found.reason}" for found in attention.reasons.values() if found.attention
    ]
    became: dict[str, OptimizedSite] = {}
    paddings = padding_masks(work)
    packed_masks: set[str] = set()
    if packing != "none" and padding_rows != "keep":
        work, packings = pack(work, target)
        packed_masks = {packed.mask for packed in packings if packed.sites}
        for packed in packings:
            if packed.why_not is not None:
                notes.append(f"tokens of `{packed.mask}` are not packed: {packed.why_not}")
            for name, form in packed.sites.items():
                became[name] = _site(reports[name], *form)
        passes_.append(("pack", len(became)))
    if padding_rows == "zero":
        try:
            left = [padding for padding in paddings if str(padding) not in packed_masks]
            passes_.append(("zero padding rows", zero_padding(work, left)))
        except Refused as error:
            raise OptimizeError(f"padding_rows='zero' can't be kept: {error}; give 'any' or 'keep'") from error
    if target.provider == "cuda" and work.opset_imports.get("", 0) >= OPSET:
        grouped = group_segments(work, target.dtype)
        became |= {name: _site(reports[name], *form) for name, form in grouped.items()}
        passes_.append(("group segments", len(grouped)))
    lowered = lower(work, target, padding_rows=padding_rows, assume=assume)
    passes_.append(("lower", len(lowered)))
    became |= {one.name: _site(reports[one.name], one.kernel, one.why, one.refused) for one in lowered}
    merged = MergeProjectionsPass()(work).modified
    passes_.append(("merge projections", int(merged)))
    unconverted = None
    if target.dtype in HALF:
        UniqueNamesPass()(work)
        unconverted, work = work, to_precision(work, target.dtype)
    passes_.append(("clean", int(clean(work))))
    UniqueNamesPass()(work)
    sites = tuple(became[report.name] for report in reports.values() if report.name in became)
    if not sites:
        return Optimized.unchanged(source, str(target), padding_rows, (), ["no attention was rewritten", *notes])
    assumes = _assumptions(source, reports, lowered, sites)
    _describe(source, work, target, padding_rows, reports, sites, assumes)
    proof = None
    if check:
        masks = [report.mask for report in reports.values()]
        proof = prove(
            source,
            work,
            padding_rows=padding_rows,
            masks=masks,
            assumes=assumes,
            dtype=target.dtype,
            unconverted=unconverted,
        )
        options = {"target": str(target), "dtype": target.dtype, "padding_rows": padding_rows}
        certificate = proof.certificate() | {"optimized": options}
        work.metadata_props[CERTIFICATE_KEY] = json.dumps(certificate)
    return Optimized(
        None,
        work,
        str(target),
        target.dtype,
        padding_rows,
        sites,
        tuple(passes_),
        tuple(assumes),
        "not run" if proof is None else proof.checked,
        proof,
        True,
        tuple(notes),
    )


def _site(report: SiteReport, kernel: str, why: str, refused: dict[str, list[str]] | None = None) -> OptimizedSite:
    return OptimizedSite(report.name, str(report.mask), report.form, kernel, why, refused or {})


def _assumptions(
    source: ir.Model, reports: dict[str, SiteReport], lowered: Sequence[Lowered], sites: Sequence[OptimizedSite]
) -> list[dict[str, Any]]:
    """Return what the result takes for granted, each fact once: what the source's file did, and what was added."""
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    written = json.loads(source.metadata_props.get(ASSUMES_KEY, "{}")).get("assumes", [])
    read = [
        {"input": tensor, "check": check, "source": site.name}
        for site in sites
        for tensor, check in reports[site.name].assumes
    ]
    for entry in [*written, *read, *(entry for one in lowered for entry in one.assumes)]:
        found.setdefault((entry["input"], entry["check"], entry.get("axis")), entry)
    return list(found.values())


def _describe(
    source: ir.Model,
    work: ir.Model,
    target: Target,
    padding_rows: str,
    reports: dict[str, SiteReport],
    sites: Sequence[OptimizedSite],
    assumes: Sequence[dict[str, Any]],
) -> None:
    """Write what the file says of itself."""
    kernels = {site.name: site.kernel for site in sites}
    write_sites(work, [claim(report, kernels.get(name)) for name, report in reports.items()])
    if assumes:
        entries = [{"axis": -1, **entry} for entry in assumes]
        work.metadata_props[ASSUMES_KEY] = json.dumps({"version": METADATA_VERSION, "assumes": entries})
    options = {"target": str(target), "dtype": target.dtype, "padding_rows": padding_rows}
    work.metadata_props[CERTIFICATE_KEY] = json.dumps({"version": METADATA_VERSION, "optimized": options})
