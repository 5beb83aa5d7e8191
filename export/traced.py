"""A module while it is traced and checked: in the element type that was asked for, and given back after."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .cases.layout import Layout
from .check.arrays import to_numpy
from .check.backend import load
from .check.eager import Eager
from .check.subject import Subject
from .errors import ExportError
from .io_metadata import masks_of
from .tracing.capture import Captured, capture
from .tracing.example_inputs import name_inputs
from .tracing.module_state import in_dtype

DTYPES = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}
SEED = 0


@dataclass(frozen=True)
class Traced:
    """A module, the inputs that it was traced on, and the graph."""

    module: nn.Module
    inputs: dict[str, Any]
    captured: Captured

    def subject(self, layout: Layout) -> Subject:
        """Make ready to run both side by side."""
        return Subject(
            self.captured.model,
            load(self.captured.model),
            self.module,
            Eager(self.module, self.inputs, list(layout.outputs)),
            layout,
            {name: to_numpy(value) for name, value in self.inputs.items() if isinstance(value, torch.Tensor)},
            masks_of(self.module),
            SEED,
        )


@contextlib.contextmanager
def trace(
    module: nn.Module,
    example_inputs: Mapping[str, Any] | Sequence[Any],
    dynamic_shapes: Mapping[str, Mapping[int, str]],
    opset_version: int | None,
    dtype: str | torch.dtype | None,
    output_names: Sequence[str] | None,
) -> Iterator[Traced]:
    """Trace a module; within the block it has the element type asked for. Parameters are :func:`export`'s.

    Raises
    ------
    ExportError
        If the element type is unknown, or tracing fails.
    """
    wanted = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if dtype is not None and wanted not in DTYPES.values():
        raise ExportError(f"dtype is {dtype!r}; give one of {', '.join(DTYPES)}, or None for the module's own")
    inputs = name_inputs(module.forward, example_inputs)
    if wanted is not None:
        inputs = {name: _cast(value, wanted) for name, value in inputs.items()}
    with in_dtype(module, wanted):
        captured = capture(module, inputs, dynamic_shapes, opset_version, output_names)
        _detach(captured)
        yield Traced(module, inputs, captured)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _detach(captured: Captured) -> None:
    """Let the graph's weights go their own way when the module gets its element type back."""
    for value in captured.model.graph.initializers.values():
        weight: Any = value.const_value
        if isinstance(getattr(weight, "raw", None), torch.Tensor):
            value.const_value = type(weight)(weight.raw.detach(), name=value.name)
