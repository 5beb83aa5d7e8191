"""What a file says of its own inputs and outputs (``maskport.io``): roles and the names of the axes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ..models.masks import KeyPadding, Mask
from .errors import ExportError

if TYPE_CHECKING:
    from torch import nn

IO_KEY = "maskport.io"
IO_VERSION = 1
ROLES = ("tokens", "mask", "positions", "packing", "other")
# Names that say their role, whatever a mask expression makes of them (`padding(input_ids != 1)`).
KNOWN = {"input_ids": "tokens", "position_ids": "positions", "cache_position": "positions"}


def describe_io(graph: ir.Graph, module: nn.Module, roles: Mapping[str, str]) -> str:
    """Return the ``maskport.io`` metadata of an exported graph as JSON.

    A mask is an input that a mask expression of the module names, or whose name ends in ``mask``. Tokens are
    inputs with one entry per token: their first two axes are free. `roles` has the last word. ``pad`` is
    the value that hides a key, where every mask that names the input hides it.

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
    masks = masks_of(module)
    inputs: dict[str, dict[str, Any]] = {}
    for value in graph.inputs:
        name, axes = str(value.name), _axes(value)
        named_by = [mask for mask in masks if name in mask.tensors]
        inputs[name] = {"role": roles.get(name) or _role(name, axes, bool(named_by)), "axes": axes}
        if named_by and len(axes) == 2 and all(mask.implies(KeyPadding(name)) for mask in named_by):
            inputs[name]["pad"] = 0
    outputs = {str(value.name): {"axes": _axes(value)} for value in graph.outputs}
    return json.dumps({"version": IO_VERSION, "inputs": inputs, "outputs": outputs})


def masks_of(module: nn.Module) -> list[Mask]:
    """Return the mask expressions that the module and its submodules hold, each once."""
    attributes = (value for submodule in module.modules() for value in vars(submodule).values())
    return list(dict.fromkeys(value for value in attributes if isinstance(value, Mask)))


def _role(name: str, axes: list[int | str | None], in_a_mask: bool) -> str:
    if name in KNOWN:
        return KNOWN[name]
    if in_a_mask or name.endswith("mask"):
        return "mask"
    return "tokens" if len(axes) >= 2 and all(isinstance(axis, str) for axis in axes[:2]) else "other"


def _axes(value: ir.Value) -> list[int | str | None]:
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape or ()]
