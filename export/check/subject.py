"""What the check looks at: the module and the model that was exported from it, ready to be run side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from torch import nn

from ...models.masks import Mask
from ..cases.draw import Case, draw_case
from ..cases.layout import Label, Layout
from ..certificate.drawn_from import DrawnFrom, with_few_values
from .backend import Backend
from .eager import Eager


@dataclass(frozen=True)
class Subject:
    """A module, its model, and what cases are drawn from.

    Attributes
    ----------
    model, backend
        What was exported, and what runs it.
    module, eager
        The reference, and what runs it.
    layout, examples, masks
        Axes and roles; the example's arrays; the mask expressions that the module holds.
    seed
        Of everything that is drawn.
    """

    model: ir.Model
    backend: Backend
    module: nn.Module
    eager: Eager
    layout: Layout
    examples: dict[str, np.ndarray]
    masks: Sequence[Mask]
    seed: int

    @property
    def name(self) -> str:
        """Class of the module."""
        return type(self.module).__name__

    @property
    def example_sizes(self) -> dict[Label, int]:
        """Size of every axis in the example."""
        return {
            axis: size
            for name, value in self.layout.inputs.items()
            for axis, size in zip(value.axes, self.examples[name].shape, strict=True)
            if axis is not None
        }

    def places(self, axis: Label) -> list[tuple[str, int]]:
        """Return the inputs that have an axis, and where."""
        return [(name, value.axes.index(axis)) for name, value in self.layout.inputs.items() if axis in value.axes]

    @property
    def drawn_from(self) -> DrawnFrom:
        """What cases are drawn from, so that the file can tell it."""
        examples = with_few_values(self.examples, self.layout)
        return DrawnFrom(self.layout, examples, tuple(dict.fromkeys(self.masks)), {})

    def draw(self, sizes: Mapping[Label, int], pattern: str = "ones") -> Case:
        """Draw a case."""
        return draw_case(self.layout, self.drawn_from.examples, self.masks, sizes, pattern, self.seed)
