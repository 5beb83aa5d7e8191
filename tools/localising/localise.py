"""Where a candidate leaves its reference: the first node whose value the reference doesn't compute, and its attention.

The reference is a file, or the values of a module.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as passes

from ...export.cases.draw import is_float
from ...export.check.backend import load
from ...export.inspector import find_claimed
from ...export.load_model import load_model
from ...export.sites_metadata import SITE_KEY
from ...export.tracing.traces import TRACE_KEY, last_frame, source_of, trace_roots
from ..child.place import ChildPlace
from .value_twins import Known, RealTokens, Values

# A constant of more numbers is a weight; of fewer it may be a scale, a fill or an epsilon.
FEW = 8
COMPARED = "biuf"


class Parting(NamedTuple):
    """Where a candidate leaves its reference: in words, and the file and line that the node was exported from."""

    told: str
    source: tuple[str, int] | None


def first_apart(
    candidate: Any, reference: Any, inputs: Mapping[str, np.ndarray], real: Sequence[np.ndarray] = ()
) -> Parting | None:
    """Return where a candidate leaves its reference, None if every value has a twin.

    Values are twins if they hold the same numbers at real tokens, whatever their names and the order of their axes:
    exporters and optimizers rename, reorder and leave padding out. What the candidate computes in another way has no
    twin either, but what comes of it has; so it is looked for behind the outputs that have none, back to values that
    have one.

    Parameters
    ----------
    candidate : path or bytes
        Of a file.
    reference : path, bytes or list of Known
        Of a file, or what a module computed on the inputs.
    inputs : mapping of str to numpy.ndarray
        On which they differ; a small case, for all values are held.
    real : sequence of numpy.ndarray
        Per token axis, which tokens are compared: bool [B, S]. By default all are.

    Raises
    ------
    ExportError, BackendError, InspectError
        If a file can't be run node by node.
    """
    model = _inlined(candidate)
    passes.ShapeInferencePass()(model)
    if isinstance(reference, str | bytes | os.PathLike):
        other = _inlined(reference)
        reference, what = _known(other, _values(other, inputs)), "the reference"
    else:
        what = "the module"
    given = [Known(np.asarray(array), f"the input {name!r}") for name, array in inputs.items()]
    known = Values([*given, *reference], RealTokens(real))
    ours = _values(model, inputs) | {name: inputs[name] for name in map(_name, model.graph.inputs)}
    twins: dict[str, Known] = {}
    for name, array in ours.items():
        if array is not None and (twin := known.twin(array)) is not None:
            twins[name] = twin
    cone = _untwinned(model, twins)
    if first := _makes_nan(model, cone, ours):
        told = f"the first NaN is made by {first.op_type} {first.name!r}"
    elif first := _first(model, cone, twins):
        told = f"the first value that leaves {what}'s is computed by {first.op_type} {first.name!r}"
    else:
        return None
    if site := _attention(model, first, cone | {first}):
        told += f", of {site}"
    if frame := _frame(first):
        told += f", at {frame}"
    carrying = _carrying(model)
    known_places = [
        str(twins[_name(value)].place) for value in _reads(first) if _name(value) in twins and value in carrying
    ]
    if places := [place for place in known_places if place]:
        told += f"; up to {places[-1]} all is as in {what}"
    return Parting(told, source_of(first))


def _inlined(given: Any) -> ir.Model:
    model, _ = load_model(given)
    passes.InlinePass()(model)
    for place, node in enumerate(model.graph.all_nodes()):
        node.name = node.name or f"{node.op_type}_{place}"
    return model


def _frame(node: ir.Node) -> str:
    """Return the line that a node was exported from; exporters write it with the folders of a machine."""
    told = last_frame(node.metadata_props.get(TRACE_KEY, ""))
    root = next((root for root in trace_roots() if told.startswith(root + os.sep)), "")
    return told.removeprefix(root).lstrip(os.sep) if root else told


def _name(value: ir.Value) -> str:
    return str(value.name)


def _values(model: ir.Model, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray | None]:
    """Return what the nodes compute, by name; None for what can't be compared, such as a sequence."""
    given = {}
    for value in model.graph.inputs:
        array = inputs[_name(value)]
        typed = is_float(array) and value.dtype is not None and value.dtype.is_floating_point()
        given[_name(value)] = array.astype(value.dtype.numpy()) if typed and value.dtype is not None else array
    found = load(model, every_value=True, start=ChildPlace.on().start).run(given)
    return {name: array if _is_compared(array) else None for name, array in found.items()}


def _is_compared(given: Any) -> bool:
    return isinstance(given, np.ndarray) and (is_float(given) or given.dtype.kind in COMPARED)


def _known(model: ir.Model, values: Mapping[str, np.ndarray | None]) -> Iterator[Known]:
    for node in model.graph:
        for output in node.outputs:
            array = values.get(_name(output))
            if array is not None:
                yield Known(array, f"{node.op_type} {node.name!r}")


def _reads(node: ir.Node) -> Iterator[ir.Value]:
    """Yield what a node reads of the graph that it stands in, by its own graphs too."""
    own = {node, *_inside(node)}
    for reader in own:
        for value in reader.inputs:
            if value is not None and value.producer() not in own and (reader is node or value.graph is node.graph):
                yield value


def _inside(node: ir.Node) -> Iterator[ir.Node]:
    """Yield the nodes of the graphs that a node runs."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield from attribute.as_graph().all_nodes()


def _untwinned(model: ir.Model, twins: Mapping[str, Known]) -> set[ir.Node]:
    """Return the nodes behind outputs without a twin, back to values that have one."""
    found: set[ir.Node] = set()
    waiting = [value for value in model.graph.outputs if _name(value) not in twins]
    while waiting:
        node = waiting.pop().producer()
        if node is not None and node not in found:
            found.add(node)
            waiting += [value for value in _reads(node) if _name(value) not in twins]
    return found


def _makes_nan(model: ir.Model, cone: set[ir.Node], values: Mapping[str, np.ndarray | None]) -> ir.Node | None:
    """Return the first node that gives NaN and reads none, if what leaves the reference is NaN.

    That may be in a row that isn't compared, from which the next layer spreads it.
    """

    def has_nan(value: ir.Value) -> bool:
        array = values.get(_name(value))
        return array is not None and is_float(array) and bool(np.isnan(array.astype(np.float64)).any())

    outputs = [value for value in model.graph.outputs if value.producer() in cone]
    if any(map(has_nan, outputs)):
        for node in model.graph:
            if any(map(has_nan, node.outputs)) and not any(map(has_nan, _reads(node))):
                return node
    return None


def _first(model: ir.Model, cone: set[ir.Node], twins: Mapping[str, Known]) -> ir.Node | None:
    """Return the first node of the cone that reads activations that have a twin; else the first that reads no other.

    A mask may be computed in another way and be right: it is told where it joins what is computed of the tokens.
    """
    carrying = _carrying(model)
    for node in model.graph:
        joins = any(_name(value) in twins and value in carrying for value in _reads(node))
        if node in cone and joins and carrying & set(node.outputs):
            return node
    return next((n for n in model.graph if n in cone and not any(v.producer() in cone for v in _reads(n))), None)


def _carrying(model: ir.Model) -> set[ir.Value]:
    """Return the values that are computed of weights or of real numbers that are given: no masks, sizes and places."""

    def weighs(value: ir.Value) -> bool:
        constant = ir.convenience.get_const_tensor(value)
        return constant is not None and constant.dtype.is_floating_point() and constant.size > FEW

    found = {value for value in model.graph.inputs if _is_real(value)}
    for node in model.graph:
        if any(value in found or weighs(value) for value in _reads(node)):
            found |= {value for value in node.outputs if _is_real(value)}
    return found


def _is_real(value: ir.Value) -> bool:
    """Whether a value may be a tensor of real numbers."""
    return value.dtype is None or value.dtype.is_floating_point()


def _attention(model: ir.Model, first: ir.Node, cone: set[ir.Node]) -> str | None:
    """Return the first attention of the cone that reads a node, in words."""
    reached = {first}
    for node in model.graph:
        if any(value.producer() in reached for value in _reads(node)):
            reached.add(node)
    reports = {str(node.name): report for node, report in find_claimed(model.clone(), check=False).reports.items()}
    by_site = {report.name: report for report in reports.values()}
    for node in model.graph:
        if node in reached and node in cone:
            for inside in (node, *_inside(node)):
                name = inside.metadata_props.get(SITE_KEY, "")
                if report := reports.get(str(inside.name), by_site.get(name)):
                    called = "an attention" if report.name == first.name else f"the attention {report.name}"
                    return f"{called} with the mask `{report.mask}`{' that the file claims' if report.claimed else ''}"
                if name:
                    return f"the attention {name}"
    return None
