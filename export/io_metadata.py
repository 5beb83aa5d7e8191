"""What a file says of its own inputs and outputs (``maskport.io``): roles and the names of the axes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ..models.mask_leaves import leaves_of
from ..models.masks import KeyPadding, Mask
from .errors import ExportError

if TYPE_CHECKING:
    from torch import nn

Axes = Sequence[int | str | None]

IO_KEY = "maskport.io"
IO_VERSION = 1
ROLES = ("tokens", "mask", "positions", "packing", "other")
# Names that say their role, whatever a mask expression makes of them (`padding(input_ids != 1)`).
KNOWN = {"input_ids": "tokens", "position_ids": "positions", "cache_position": "positions"}
# The value that hides a key, by the end of a mask's name; torch.nn's `key_padding_mask` is True where a key is padding.
PADS = {"key_padding_mask": 1, "mask": 0}


def read_io(metadata: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what a file says of its inputs and outputs; None if it says nothing.

    Raises
    ------
    ExportError
        If it is damaged, or of a version that isn't known: it is refused, and not ignored.
    """
    if IO_KEY not in metadata:
        return None
    try:
        io = json.loads(metadata[IO_KEY])
    except ValueError as error:
        raise ExportError(f"the file's {IO_KEY} is no JSON: {error}; make the file again") from error
    version = io.get("version") if isinstance(io, dict) else None
    if version != IO_VERSION:
        raise ExportError(
            f"the file's {IO_KEY} has version {version}, this Maskport reads version {IO_VERSION}; update Maskport, or "
            "make the file again with this one"
        )
    for kind in ("inputs", "outputs"):
        described = io.get(kind)
        if not isinstance(described, dict):
            raise ExportError(f"the file's {IO_KEY} is damaged: it has no {kind} by their names; make the file again")
        for name, entry in described.items():
            if not _is_entry(entry, kind):
                raise ExportError(f"the file's {IO_KEY} is damaged at {name!r}: {entry!r}; make the file again")
    return dict(io)


def _is_entry(entry: object, kind: str) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("axes"), list):
        return False
    if not all(axis is None or isinstance(axis, int | str) for axis in entry["axes"]):
        return False
    return kind == "outputs" or (entry.get("role") in ROLES and isinstance(entry.get("pad", 0), int))


def describe_io(
    graph: ir.Graph, module: nn.Module, roles: Mapping[str, str], pads: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return the ``maskport.io`` metadata of an exported graph; see :func:`io_of`."""
    inputs = {str(value.name): axes_of(value) for value in graph.inputs}
    return io_of(inputs, {str(value.name): axes_of(value) for value in graph.outputs}, masks_of(module), roles, pads)


def io_of(
    inputs: Mapping[str, Axes],
    outputs: Mapping[str, Axes],
    masks: Sequence[Mask],
    roles: Mapping[str, str],
    pads: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return the ``maskport.io`` metadata of inputs and outputs, by their axes and the masks that name them.

    Packing tells the segments of a mask expression. A mask is any other input that one names, or whose name ends in
    ``mask``. Tokens are
    inputs with one entry per token: their first two axes are free. `roles` has the last word. ``pad`` is
    the value that hides a key: what every mask expression that names the input says; else by the name of a mask
    [batch, seq]; `pads` has the last word.

    Raises
    ------
    ExportError
        If `roles` or `pads` names an input that is not there, or a role doesn't exist.
    """
    pads = pads or {}
    names = list(inputs)
    for name, role in roles.items():
        if name not in names or role not in ROLES:
            raise ExportError(
                f"roles has {name!r}: {role!r}; inputs are {', '.join(names)}, roles are {', '.join(ROLES)}"
            )
    if unknown := [name for name in pads if name not in names]:
        raise ExportError(f"pads has {unknown[0]!r}; inputs are {', '.join(names)}")
    batches = {axes[0] for axes in inputs.values() if len(axes) > 2}
    described: dict[str, dict[str, Any]] = {}
    for name, axes in inputs.items():
        named_by = [mask for mask in masks if name in mask.tensors]
        described[name] = {"role": roles.get(name) or _role(name, axes, named_by), "axes": list(axes)}
        pad = pads.get(name, _hiding(name, named_by) if named_by else None)
        if pad is None and not named_by and described[name]["role"] == "mask" and _is_row_of_keys(axes, batches):
            pad = next((value for end, value in PADS.items() if name.endswith(end)), None)
        if pad is not None and len(axes) == 2:
            described[name]["pad"] = pad
    return {
        "version": IO_VERSION,
        "inputs": described,
        "outputs": {name: {"axes": list(axes)} for name, axes in outputs.items()},
    }


def masks_of(module: nn.Module) -> list[Mask]:
    """Return the mask expressions that the module and its submodules hold, each once."""
    attributes = (value for submodule in module.modules() for value in vars(submodule).values())
    return list(dict.fromkeys(value for value in attributes if isinstance(value, Mask)))


def _role(name: str, axes: Axes, named_by: list[Mask]) -> str:
    if name in KNOWN:
        return KNOWN[name]
    leaves = (leaf for mask in named_by for leaf in leaves_of(mask._expr))
    if any(leaf[0] == "segments" and name in leaf[1:] for leaf in leaves):
        return "packing"
    if named_by or name.endswith("mask"):
        return "mask"
    return "tokens" if len(axes) >= 2 and all(isinstance(axis, str) for axis in axes[:2]) else "other"


def _hiding(name: str, masks: list[Mask]) -> int | None:
    """Return the value of the tensor that hides a key in every mask."""
    leaves = (leaf for mask in masks for leaf in leaves_of(mask._expr))
    pads = dict.fromkeys(leaf[2] for leaf in leaves if leaf[:2] == ("padding", name))
    return next((pad for pad in pads if all(mask.implies(KeyPadding(name, pad=pad)) for mask in masks)), None)


def _is_row_of_keys(axes: Axes, batches: set[int | str | None]) -> bool:
    """Whether axes are [batch, seq] and not [query, key]: the first is that of the larger inputs, if there are any."""
    return len(axes) == 2 and axes[0] != axes[1] and (not batches or axes[0] in batches)


def axes_of(value: ir.Value) -> list[int | str | None]:
    """Return sizes of fixed axes, names of free ones, and None for those without a name."""
    return [dim if isinstance(dim, int) else dim.value for dim in value.shape or ()]
