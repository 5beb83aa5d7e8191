"""The example inputs by name, and whether their sizes leave the dynamic axes free."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..errors import ExportError

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def name_inputs(forward: Callable[..., Any], example_inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return the example inputs by parameter name, in the order in which they were given.

    Raises
    ------
    ExportError
        If they don't fit ``forward``'s parameters, or a value holds tensors without being one.
    """
    parameters = inspect.signature(forward).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    named = [name for name, parameter in parameters.items() if parameter.kind not in VARIADIC]
    takes = f"forward takes {', '.join(named)}{', **kwargs' if inspect.Parameter.VAR_KEYWORD in kinds else ''}"
    if isinstance(example_inputs, Mapping):
        inputs = dict(example_inputs)
    elif isinstance(example_inputs, Sequence) and len(example_inputs) <= len(named):
        inputs = dict(zip(named, example_inputs, strict=False))
    else:
        raise ExportError(f"example_inputs must be a dict by parameter name or a tuple; {takes}")
    unknown = [name for name in inputs if name not in named]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise ExportError(f"example_inputs has {', '.join(unknown)}; {takes}")
    missing = [name for name in named if name not in inputs and parameters[name].default is inspect.Parameter.empty]
    if missing:
        raise ExportError(f"example_inputs lacks {', '.join(missing)}; {takes}")
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor) and any(
            isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)
        ):
            raise ExportError(
                f"input {name!r} is a {type(value).__name__} of tensors; give each a parameter of its own"
            )
    return inputs


def check_dynamic_shapes(tensors: Mapping[str, torch.Tensor], shapes: Mapping[str, Mapping[int, str]]) -> None:
    """Check that the dynamic axes are there, and that the example's sizes leave them dynamic.

    Raises
    ------
    ExportError
        If a name or an axis is not there, an example size is 0 or 1, or one name has two sizes.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, axes in shapes.items():
        if name not in tensors:
            raise ExportError(f"dynamic_shapes has {name!r}; the example tensors are {', '.join(tensors)}")
        shape = list(tensors[name].shape)
        for axis, dim in axes.items():
            if not isinstance(axis, int) or not 0 <= axis < len(shape) or not isinstance(dim, str):
                raise ExportError(
                    f"dynamic_shapes[{name!r}] has {axis!r}: {dim!r}; give a name to an axis of its shape "
                    f"{shape}, counted from 0"
                )
            size, where = sizes.setdefault(dim, (shape[axis], f"{name!r} axis {axis}"))
            if shape[axis] != size:
                raise ExportError(f"{dim!r} is {size} in {where}, but {shape[axis]} in {name!r} axis {axis}")
            if size < 2:
                raise ExportError(
                    f"{dim!r} is {size} in the example ({where}); PyTorch takes a size of 0 or 1 for fixed, "
                    "so give an example with a size of 2 or more"
                )
