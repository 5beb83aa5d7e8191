"""The call of PyTorch's exporter: named inputs in, an ONNX graph with the same names out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import onnx_ir as ir
import torch
from torch import nn
from torch.export.graph_signature import ConstantArgument
from torch.utils import _pytree as pytree

from ..errors import ExportError
from .example_inputs import check_dynamic_shapes
from .failures import explain
from .module_state import evaluation, forward_of, no_fast_path
from .quiet import collected

# PyTorch's own "no bound" is a number near the largest integer.
UNBOUNDED = 1 << 40


@dataclass(frozen=True)
class Captured:
    """What the exporter made.

    Attributes
    ----------
    model
        The graph.
    messages
        What the libraries said, each message once.
    bounds
        Least and largest size (None: any) of a free axis that the trace holds for.
    """

    model: ir.Model
    messages: tuple[str, ...]
    bounds: dict[str, tuple[int, int | None]]


def capture(
    module: nn.Module,
    inputs: Mapping[str, Any],
    dynamic_shapes: Mapping[str, Mapping[int, str]],
    opset_version: int | None,
    output_names: Sequence[str] | None,
) -> Captured:
    """Trace a module on inputs by name. Parameters are :func:`export`'s."""
    # Copies: PyTorch takes one tensor that is given twice for one input.
    tensors = {name: value.detach().clone() for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    constants = {name: value for name, value in inputs.items() if name not in tensors}
    check_dynamic_shapes(tensors, dynamic_shapes)
    shapes = {name: dict(dynamic_shapes.get(name, {})) for name in tensors}
    with (
        collected() as messages,
        evaluation(module),
        no_fast_path(),
        # Traced with gradients and decomposed without, attention with a trained bias (T5) gets other strides and fails.
        torch.no_grad(),
        forward_of(module, list(tensors), constants),
    ):
        try:
            program = torch.onnx.export(
                module,
                tuple(tensors.values()),
                dynamic_shapes=shapes,
                opset_version=opset_version,
                dynamo=True,
                verbose=False,
            )
        except Exception as error:
            raise ExportError(explain(module, error)) from error
    assert program is not None
    assert program.exported_program is not None
    graph = program.model.graph
    if opset_version not in (None, written := program.model.opset_imports[""]):
        raise ExportError(
            f"opset_version is {opset_version}, but PyTorch wrote opset {written}: it can't write that one; "
            "give another, or none for its own choice"
        )
    if output_names is not None and len(output_names) != len(graph.outputs):
        raise ExportError(f"the module has {len(graph.outputs)} outputs, output_names gives {len(output_names)}")
    output_names = output_names or _output_names(program.exported_program)
    values = [*graph.inputs, *graph.outputs]
    _rename(graph, dict(zip(values, [*tensors, *output_names], strict=True)))
    _check_axes(graph, shapes)
    return Captured(program.model, tuple(dict.fromkeys(messages)), _bounds(program.exported_program, shapes))


def _bounds(
    program: torch.export.ExportedProgram, shapes: Mapping[str, Mapping[int, str]]
) -> dict[str, tuple[int, int | None]]:
    """Return the range of every free axis that the guards of the trace leave."""
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    bounds: dict[str, tuple[int, int | None]] = {}
    for given, axes in zip(program.graph_signature.user_inputs, shapes.values(), strict=True):
        for axis, dim in axes.items():
            size = values[given].shape[axis] if isinstance(given, str) else None
            if isinstance(size, torch.SymInt) and (found := program.range_constraints.get(size.node.expr)) is not None:
                low, high = found.lower, found.upper
                bounds[dim] = (int(low), int(high) if high.is_finite and high < UNBOUNDED else None)
    return bounds


def _output_names(program: torch.export.ExportedProgram) -> list[str]:
    """Name the outputs by the keys and indices that lead to them in what the module returns."""
    spec = program.call_spec.out_spec
    assert spec is not None
    leaves = pytree.tree_flatten_with_path(pytree.tree_unflatten(range(spec.num_leaves), spec))[0]
    specs = program.graph_signature.output_specs
    paths = [
        path for (path, _), output in zip(leaves, specs, strict=True) if not isinstance(output.arg, ConstantArgument)
    ]
    return ["_".join(["output"] * (not _is_named(path)) + [_step(step) for step in path]) for path in paths]


def _is_named(path: pytree.KeyPath) -> bool:
    return bool(path) and not isinstance(path[0], pytree.SequenceKey)


def _step(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))


def _rename(graph: ir.Graph, names: Mapping[ir.Value, str]) -> None:
    """Name the graph's inputs and outputs; a value in between that has one of these names gets another."""
    taken = set(names.values())
    inner = chain.from_iterable(node.outputs for node in graph.all_nodes())
    for value in [*graph.inputs, *graph.initializers.values(), *inner]:
        if value in names:
            value.name = names[value]
        elif value.name in taken:
            value.name = f"{value.name}_value"


def _check_axes(graph: ir.Graph, shapes: Mapping[str, Mapping[int, str]]) -> None:
    for value in graph.inputs:
        assert value.shape is not None
        for axis, dim in shapes[str(value.name)].items():
            if isinstance(value.shape[axis], int):
                raise ExportError(
                    f"{dim!r} (axis {axis} of {value.name!r}) was fixed at {value.shape[axis]} by the module"
                )
