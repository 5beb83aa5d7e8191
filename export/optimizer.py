"""From a model that is understood to a fast one that does the same, and the proof of it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import onnx_ir.passes.common as passes

from ..models.masks import Mask
from . import repairs
from .certificate.claim import Certificate
from .certificate.digest import digest_of
from .check.checked import ASSUMES_KEY, CERTIFICATE_KEY, METADATA_VERSION
from .errors import OptimizeError
from .files import prepare, save
from .inspector import Attention, find_attention
from .io_metadata import read_io
from .load_model import load_model
from .lowering.canonical import canonicalize
from .lowering.costs import COSTS
from .lowering.facts import Grants
from .lowering.lower import Lowered, lower
from .lowering.targets import Target, TargetError
from .opset import raise_opset
from .optimized import Optimized, OptimizedSite
from .packing import group_segments, pack, padding_masks, zero_padding
from .packing.exits import Refused
from .passes import UniqueNamesPass, clean, fewer_launches
from .precision import to_precision
from .proof import Proof, prove
from .report import SiteReport
from .sites_metadata import claim, read_sites, write_sites
from .symbolic.sites import Site

if TYPE_CHECKING:
    from .tuning import Workload
    from .tuning.tuner import Tuner

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
    autotune: Workload | None = None,
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
    autotune : Workload, optional
        Sizes for which the forms of attention, and the model with and without its padding, are measured on this
        machine's CPU; what is fastest is taken. What was measured once is kept in the user's cache folder.
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
    if packing == "host" and (wanted.provider == "cpu" or padding_rows == "keep"):
        why = "the CPU reads nothing back" if wanted.provider == "cpu" else "padding rows that are kept stay"
        raise OptimizeError(f"packing='host' can't be had: {why}; give packing='auto'")
    source, _ = load_model(model)
    # What it says is refused before anything is made of it.
    read_io(source.metadata_props)
    destination = Path(path) if path is not None else None
    if destination is not None:
        prepare(destination)
    made = _already(source, target, padding_rows)
    if made is None:
        asked = _Asked(wanted, padding_rows, tuple(sorted(assume)), tuple(sorted(repair)), packing)
        made = _optimize(source, asked, check) if autotune is None else _tuned(source, asked, check, autotune)
    if destination is not None:
        save(made.model, destination)
    return made.at(destination)


def _already(source: ir.Model, target: str, padding_rows: str) -> Optimized | None:
    """Return a file that was optimized before as it is."""
    try:
        certificate = json.loads(source.metadata_props.get(CERTIFICATE_KEY, "{}"))
    except ValueError:
        certificate = None
    if not isinstance(certificate, dict):
        raise OptimizeError(f"the file's {CERTIFICATE_KEY} is damaged; make the file again")
    made = certificate.get("optimized")
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


@dataclass(frozen=True)
class _Asked:
    """What the caller wants; see `optimize`."""

    target: Target
    padding_rows: str
    assume: tuple[str, ...]
    repair: tuple[str, ...]
    packing: str


def _tuned(source: ir.Model, asked: _Asked, check: bool, workload: Workload) -> Optimized:
    """Optimize by what is measured."""
    from .tuning.tuner import Tuner

    tuner = Tuner.of(workload, asked.target)
    if asked.packing == "auto" and asked.padding_rows != "keep":
        options = {
            "dtype": asked.target.dtype,
            "padding_rows": asked.padding_rows,
            "assume": list(asked.assume),
            "repair": list(asked.repair),
        }

        def build(packing: str) -> Optimized:
            return _optimize(source, replace(asked, packing=packing), False, tuner)

        asked = replace(asked, packing=tuner.packing(source, options, build))
    made = _optimize(source, asked, check, tuner)
    return replace(made, measured=tuple(tuner.answers), notes=(*made.notes, *tuner.notes))


def _optimize(source: ir.Model, asked: _Asked, check: bool, tuner: Tuner | None = None) -> Optimized:
    target, padding_rows, packing = asked.target, asked.padding_rows, asked.packing
    try:
        Grants(asked.assume, source)
    except ValueError as error:
        raise OptimizeError(str(error)) from error
    made = _Making(target, padding_rows)
    source, work = made.repaired(source, asked.repair)
    passes.InlinePass()(work)
    if (reason := raise_opset(work, OPSET)) is not None:
        made.notes.append(f"the operator set stays {work.opset_imports.get('', 0)}: {reason}")
    attention = find_attention(work)
    made.reports = {report.name: report for report in attention.reports.values()}
    made.canonicalize(work, attention)
    paddings = padding_masks(work)
    if packing != "none" and padding_rows != "keep":
        work, paddings = made.packed(work, paddings, host=packing == "host")
    if padding_rows == "zero":
        made.zero(work, paddings)
    # How many segments there are is read back from the device, which the caller's packing is there to avoid.
    if target.provider == "cuda" and packing != "host" and work.opset_imports.get("", 0) >= OPSET:
        grouped = group_segments(work, target.dtype)
        made.became |= {name: made.site(name, *form) for name, form in grouped.items()}
        made.count("group segments", len(grouped))
    costs = COSTS if tuner is None else tuner.costs(work, target, padding_rows, asked.assume)
    lowered = lower(work, target, padding_rows=padding_rows, assume=asked.assume, costs=costs)
    made.became |= {one.name: made.site(one.name, one.kernel, one.why, one.refused) for one in lowered}
    made.count("lower", len(lowered))
    if not made.became and not made.was_repaired:
        notes = ["no attention was rewritten", *made.notes]
        return Optimized.unchanged(source, str(target), padding_rows, (), notes)
    if target.provider == "cuda":
        for name, number in fewer_launches(work).items():
            made.count(name, number)
    unconverted = None
    if target.dtype in HALF:
        UniqueNamesPass()(work)
        unconverted, work = work, to_precision(work, str(target.dtype))
    made.count("clean", int(clean(work)))
    UniqueNamesPass()(work)
    assumes = _assumptions(source, made.reports, lowered, made.sites)
    proof = None
    if check:
        masks = [report.mask for report in made.reports.values()]
        proof = prove(
            source,
            work,
            padding_rows=padding_rows,
            masks=masks,
            assumes=assumes,
            dtype=target.dtype,
            unconverted=unconverted,
        )
    made.describe(work, assumes, proof)
    return made.result(work, assumes, proof)


class _Making:
    """What was done so far, and to which attention."""

    def __init__(self, target: Target, padding_rows: str) -> None:
        self.target, self.padding_rows = target, padding_rows
        self.passes: list[tuple[str, int]] = []
        self.notes: list[str] = []
        self.reports: dict[str, SiteReport] = {}
        self.became: dict[str, OptimizedSite] = {}
        self.was_repaired = False

    def count(self, name: str, number: int) -> None:
        """Note how much a pass did."""
        self.passes.append((name, number))

    @property
    def sites(self) -> tuple[OptimizedSite, ...]:
        """What was rewritten, in the source's order."""
        return tuple(self.became[name] for name in self.reports if name in self.became)

    def site(self, name: str, kernel: str, why: str, refused: dict[str, list[str]] | None = None) -> OptimizedSite:
        """Return what an attention became."""
        report = self.reports[name]
        return OptimizedSite(name, str(report.mask), report.form, kernel, why, refused or {})

    def repaired(self, source: ir.Model, names: Sequence[str]) -> tuple[ir.Model, ir.Model]:
        """Return what the result must do the same as, and a copy with the repairs that were asked for."""
        work = source.clone()
        done = repairs.apply(work, names) if names else {}
        for name, number in done.items():
            self.count(f"repair {name}", number)
        for name, number in repairs.offered(work).items():
            summary = repairs.REPAIRS[name].summary
            self.notes.append(f"a repair is offered, {name} (nodes: {number}): it would {summary}")
        self.was_repaired = any(done.values())
        changes = any(number and repairs.REPAIRS[name].changes_meaning for name, number in done.items())
        return (work.clone() if changes else source), work

    def canonicalize(self, work: ir.Model, attention: Attention) -> None:
        """Make attention canonical where what its mask takes for granted can be checked at run time."""
        given = {value.name for value in work.graph.inputs}
        refused: dict[str, str] = {}
        taken: list[Site] = []
        for site in attention.sites:
            hidden = [(tensor, check) for tensor, check in site.assumes if tensor not in given]
            if hidden:
                tensor, check = hidden[0]
                refused[attention.names[site.node]] = f"{tensor!r} must be {check}, and is no input that can be checked"
            else:
                taken.append(site)
        refused |= canonicalize(work, taken, attention.names)[1]
        refused |= {found.node: found.reason for found in attention.reasons.values() if found.attention}
        self.notes += [f"{name} is left as it is: {reason}" for name, reason in refused.items()]

    def packed(self, work: ir.Model, paddings: Sequence[Mask], *, host: bool) -> tuple[ir.Model, list[Mask]]:
        """Pack tokens; return the model, and the padding masks whose tokens are not packed."""
        work, packings = pack(work, self.target, host=host)
        for packing in packings:
            if packing.why_not is not None:
                self.notes.append(f"tokens of `{packing.mask}` are not packed: {packing.why_not}")
            self.became |= {name: self.site(name, *form) for name, form in packing.sites.items()}
        self.count("pack", len(self.became))
        done = {packing.mask for packing in packings if packing.sites}
        return work, [padding for padding in paddings if str(padding) not in done]

    def zero(self, work: ir.Model, paddings: Sequence[Mask]) -> None:
        """Set padding rows of the outputs to zero where packing does not."""
        try:
            self.count("zero padding rows", zero_padding(work, paddings))
        except Refused as error:
            raise OptimizeError(f"padding_rows='zero' can't be kept: {error}; give 'any' or 'keep'") from error

    def describe(self, work: ir.Model, assumes: Sequence[dict[str, Any]], proof: Proof | None) -> None:
        """Write what the file says of itself."""
        kernels = {site.name: site.kernel for site in self.sites}
        write_sites(work, [claim(report, kernels.get(name)) for name, report in self.reports.items()])
        if assumes:
            entries = [{"axis": -1, **entry} for entry in assumes]
            work.metadata_props[ASSUMES_KEY] = json.dumps({"version": METADATA_VERSION, "assumes": entries})
        options = {"target": str(self.target), "dtype": self.target.dtype, "padding_rows": self.padding_rows}
        certificate = {"version": METADATA_VERSION} if proof is None else proof.certificate()
        work.metadata_props[CERTIFICATE_KEY] = Certificate.write(
            certificate | {"digest": digest_of(work), "optimized": options}
        )

    def result(self, work: ir.Model, assumes: Sequence[dict[str, Any]], proof: Proof | None) -> Optimized:
        """Return what was made."""
        return Optimized(
            None,
            work,
            str(self.target),
            self.target.dtype,
            self.padding_rows,
            self.sites,
            tuple(self.passes),
            tuple(assumes),
            "not run" if proof is None else proof.checked,
            proof,
            True,
            tuple(self.notes),
        )


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
