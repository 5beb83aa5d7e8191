"""How far rounding alone may move a result: measured by a run in float64, or by a model of depth, width and type."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir
import onnx_ir.passes.common as passes

from ...export.cases.parity import Tolerance, tolerance_of
from ...export.load_model import load_model

__all__ = ["Depth", "Rounding"]

# One step of a row: it is rounded as a whole by a product, a norm, a softmax or another function of all its numbers.
STEPS = {
    *("Attention", "Conv", "Einsum", "Erf", "FusedMatMul", "Gelu", "Gemm", "GroupQueryAttention"),
    *("LayerNormalization", "MatMul", "MultiHeadAttention", "ReduceMean", "ReduceSum", "RMSNormalization"),
    *("RotaryEmbedding", "Sigmoid", "SimplifiedLayerNormalization", "SkipLayerNormalization", "Softmax", "Tanh"),
}
# What a step leaves of a number, relative to the largest of its row. In float32, exp, erf and tanh are approximated to
# some units in the last place; shorter types are computed in float32 and rounded once.
STEP = {"float32": 2.0**-22, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# Blocks in which sums are accumulated; a longer sum rounds more, in float32 alone.
BLOCK = 4096
# Above one rounding of each step: what a few dozen cases of small models showed, and as much again.
MODEL = 16
# Above the reference's own error: candidates were found at 0.4 to 2.3 times of it.
MEASURED = 8
# Above the model, or what its element type is allowed elsewhere: a reference that is further from its own run in
# float64 doesn't round, it chooses, as an argmax or the routing of experts does.
MOST = 2


@dataclass(frozen=True)
class Depth:
    """Of a graph: the most steps on a way through it, and the longest sum of a product with weights."""

    steps: int
    width: int

    @classmethod
    def of(cls, model: str | os.PathLike[str] | bytes | ir.Model) -> Depth:
        """Read them from a file."""
        graph_of, _ = load_model(model)
        passes.InlinePass()(graph_of)
        steps: dict[ir.Value, int] = {}
        width = 1
        for node in graph_of.graph:
            before = max((steps.get(value, 0) for value in node.inputs if value is not None), default=0)
            steps |= dict.fromkeys(node.outputs, before + (node.op_type in STEPS))
            width = max(width, _inner(node))
        return cls(max((steps.get(value, 0) for value in graph_of.graph.outputs), default=0), width)

    def rounding(self, dtype: str) -> float | None:
        """Return what one rounding of each step leaves, per unit of the largest number; None for types unknown."""
        step = STEP.get(dtype)
        if step is None:
            return None
        # Roundings are independent: they add as the root of their number.
        longer = math.sqrt(self.width / BLOCK) if dtype == "float32" else 0.0
        return step * math.sqrt(max(self.steps, 1)) * (1 + longer)

    def __str__(self) -> str:
        return f"{self.steps} steps, sums of up to {self.width}"


def _inner(node: ir.Node) -> int:
    if node.op_type not in ("MatMul", "Gemm") or len(node.inputs) < 2 or node.inputs[1] is None:
        return 0
    shape = node.inputs[1].shape
    transposed = node.op_type == "Gemm" and node.attributes.get_int("transB", False)
    inner = shape[-1 if transposed else 0 if len(shape) == 1 else -2] if shape is not None and len(shape) else 0
    return inner if isinstance(inner, int) else 0


@dataclass
class Rounding:
    """The limits of a validation's outputs.

    Attributes
    ----------
    depth
        Of the candidate's graph; None if there is only a session.
    given
        Limits that were asked for, by an output's name or its element type.
    errors
        By output: how far the reference was from its own run in float64 on valid rows, per unit of the largest value.
    """

    depth: Depth | None
    given: Mapping[str, float]
    errors: dict[str, list[float]] = field(default_factory=dict)

    def measured(self, output: str, error: float) -> None:
        """Note an error of the reference."""
        if math.isfinite(error):
            self.errors.setdefault(output, []).append(error)

    def tolerance(self, output: str, dtype: str) -> Tolerance:
        """Return what an output may differ by, per unit of the largest value (at least 1), and why."""
        if (given := self.given.get(output, self.given.get(dtype))) is not None:
            return Tolerance(given, "as asked for")
        fixed = tolerance_of(dtype)
        model = self.depth.rounding(dtype) if self.depth is not None else None
        if model is None:
            return fixed
        if output not in self.errors:
            return Tolerance(MODEL * model, f"{MODEL} times one rounding of each of {self.depth}")
        error, most = max(self.errors[output]), MOST * max(MODEL * model, fixed.value)
        if MEASURED * error <= model:
            return Tolerance(model, f"one rounding of each of {self.depth}")
        if MEASURED * error >= most:
            return Tolerance(most, f"as much as rounding may do: {MODEL * MOST} times that of each of {self.depth}")
        return Tolerance(MEASURED * error, f"{MEASURED} times the reference's distance from its own run in float64")

    def beyond(self, output: str, dtype: str) -> float | None:
        """Return the error of a reference that is more than rounding does; None elsewhere."""
        error = max(self.errors.get(output, [0.0]))
        return error if error > self.tolerance(output, dtype).value else None
