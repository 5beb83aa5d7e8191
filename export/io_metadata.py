"""What a file says of its own inputs and outputs (``maskport.io``): roles and the names of the axes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ..models.masks import Mask
from .errors import ExportError

if TYPE_CHECKING:
    from torch import nn

IO_KEY = "maskport.io"
ROLES = ("tokens", "mask", "positions", "packing", "other")
POSITIONS = {"position_ids", "positions", "cache_position"}


def describe_io(graph: ir.Graph, module: nn.Module, roles: Mapping[str, str]) -> str:
    """Return the ``maskport.io`` metadata of an exported graph as JSON.

    A mask is an input that a mask expression of the module names, or whose name ends in ``mask``. Tokens are
    inputs with one entry per token: their first two axes are free. `roles` has the last word.

    Raises
    ------
    ExportError
        If `roles` names an input that is not there, or a role that doesn't exist.
    """
    names = [str(value.name) for value in graph.inputs]
    for name, role in roles.items():
        if name not in names or role not in ROLES:
            raise ExportError(
                f"roles has {name!r}: {role!r}; inputs are {', '.join(names)}, roles are {', '.join(ROLES)}"
            )
    masks = mask_names(module)
    inputs: dict[str, dict[str, Any]] = {}
    for value in graph.inputs:
        name, axes = str(value.name), _axes(value)
        inputs[name] = {"role": roles.get(name) or _role(name, axes, masks), "axes": axes}
    outputs = {str(value.name): {"axes": _axes(value)} for value in graph.outputs}
    return json.dumps({"version": 1, "inputs": inputs, "outputs": outputs})


def mask_names(module: nn.Module) -> set[str]:
    """Return the names of the tensors in the mask expressions that the module and its submodules hold."""
    return {
        name
        for submodule in module.modules()
        for attribute in vars(submodule).values()
        if isinstance(attribute, Mask)
        for name in attribute.tensors
    }


def _role(name: str, axes: list[int | str | None], masks: set[str]) -> str:
    if name in masks or name.endswith("mask"):
        return "mask"
    if name in POSITIONS:
        return "positions"
    return "tokens" if len(axes) >= 2 and all(isinstance(axis, str) for axis in axes[:2]) else "other"


def _axes(value: ir.Value) -> list[int | str | None]:
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape or ()]
