"""Where two files part: the first node whose value has no twin in the other, and the attention that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as passes

from ..export.cases.draw import is_float
from ..export.check.backend import load
from ..export.inspector import find_attention, load_model

# Of the largest number: by this much twins may differ, after many roundings.
CLOSE = 1e-4


def first_apart(candidate: Any, reference: Any, inputs: Mapping[str, np.ndarray]) -> str | None:
    """Return in words where a candidate leaves its reference, None if every value has a twin.

    Values are twins if they have one shape and hold the same numbers, whatever their names are: other exporters and
    optimizers rename and reorder. What the candidate computes in another way has no twin either, but what comes of it
    has; so it is looked for behind the outputs that have none, back to values that have one.

    Parameters
    ----------
    candidate, reference : path or bytes
        Both take `inputs`.
    inputs : mapping of str to numpy.ndarray
        On which they differ; a small case, for all values are held.

    Raises
    ------
    ExportError, BackendError
        If one can't be run node by node.
    """
    model = _inlined(candidate)
    ours, theirs = _values(model, inputs), _values(_inlined(reference), inputs)
    by_shape: dict[tuple[int, ...], list[np.ndarray]] = {}
    for array in theirs.values():
        by_shape.setdefault(array.shape, []).append(array)
    twinned = {
        name: any(_same(array, other) for other in by_shape.get(array.shape, ())) for name, array in ours.items()
    }
    cone = _untwinned(model, twinned)
    first = next((node for node in model.graph if node in cone and not any(_in(v, cone) for v in node.inputs)), None)
    if first is None:
        return None
    told = f"the first value without a twin is computed by {first.op_type} {first.name!r}"
    return f"{told}, of {site}" if (site := _attention(model, first, cone)) else told


def _inlined(given: Any) -> ir.Model:
    model, _ = load_model(given)
    passes.InlinePass()(model)
    return model


def _values(model: ir.Model, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = load(model, every_value=True).run({name: inputs[name] for name in map(str, _names(model))})
    return {name: np.asarray(array) for name, array in found.items()}


def _names(model: ir.Model) -> list[str | None]:
    return [value.name for value in model.graph.inputs]


def _same(one: np.ndarray, two: np.ndarray) -> bool:
    if not is_float(one) or not is_float(two):
        return one.dtype.kind == two.dtype.kind and bool(np.array_equal(one, two))
    a, b = one.astype(np.float64), two.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    # The lowest number is no measure of others.
    size = max(1.0, float(finite[finite < 1e9].max(initial=0.0)))
    return bool(np.allclose(a, b, rtol=CLOSE, atol=CLOSE * size, equal_nan=True))


def _untwinned(model: ir.Model, twinned: Mapping[str, bool]) -> set[ir.Node]:
    """Return the nodes behind outputs without a twin, back to values that have one."""
    found: set[ir.Node] = set()
    waiting = [value for value in model.graph.outputs if not twinned.get(str(value.name), True)]
    while waiting:
        node = waiting.pop().producer()
        if node is not None and node not in found:
            found.add(node)
            waiting += [v for v in node.inputs if v is not None and not twinned.get(str(v.name), True)]
    return found


def _in(value: ir.Value | None, cone: set[ir.Node]) -> bool:
    return value is not None and value.producer() in cone


def _attention(model: ir.Model, first: ir.Node, cone: set[ir.Node]) -> str | None:
    """Return the first attention of the cone that reads a node, in words."""
    reached = {first}
    for node in model.graph:
        if any(value is not None and value.producer() in reached for value in node.inputs):
            reached.add(node)
    names = {str(node.name) for node in reached & cone}
    attention = find_attention(model.clone(), check=False)
    for site in attention.sites:
        if str(site.node.name) in names:
            return f"the attention {attention.names[site.node]} with the mask `{site.mask}`"
    return None
