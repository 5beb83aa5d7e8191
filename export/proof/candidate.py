"""What is compared with the source: the result, and what it was before it was converted to a coarser type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from ..cases.draw import is_float
from ..cases.parity import TOLERANCES, Tolerance, tolerance_of
from ..check.backend import BackendError
from ..errors import ProofFailed
from ..packing.host_inputs import host_inputs
from .side import HERE, Place, Side, side_of

# What a conversion may change, where the same graph was shown to be right before it: a tighter limit would tell deep
# models from shallow ones, not right ones from wrong ones.
CONVERTED = TOLERANCES | {
    "float16": Tolerance(5e-2, "the graph was right before its conversion; each layer adds its rounding of 5e-4"),
    "bfloat16": Tolerance(3e-1, "the graph was right before its conversion; each layer adds its rounding of 4e-3"),
}


@dataclass(frozen=True)
class Candidate:
    """A model that must do what the source does.

    Attributes
    ----------
    side
        What runs it.
    when
        For messages: empty for the result itself.
    dtype
        What it computes in, if that is coarser than its outputs.
    tolerances
        By element type.
    inputs
        Element types of its inputs.
    metadata
        Its own: it may have inputs that are computed from the others.
    """

    side: Side
    when: str
    dtype: str | None
    tolerances: Mapping[str, Tolerance]
    inputs: Mapping[str, np.dtype]
    metadata: Mapping[str, str]

    @classmethod
    def of(
        cls, model: ir.Model, when: str, dtype: str | None, converted: bool = False, place: Place = HERE
    ) -> Candidate:
        """Load a candidate; see :func:`side_of`."""
        inputs = {str(value.name): value.dtype.numpy() for value in model.graph.inputs if value.dtype is not None}
        tolerances = CONVERTED if converted else TOLERANCES
        return cls(
            side_of(model, f"{when}the result", place=place), when, dtype, tolerances, inputs, model.metadata_props
        )

    def run(self, inputs: Mapping[str, np.ndarray], case: str) -> dict[str, np.ndarray]:
        """Run it on arrays of the source's types.

        Raises
        ------
        ProofFailed
            If it fails.
        """
        try:
            taken = {name: self._taken(name, array) for name, array in inputs.items()}
            return self.side.run(taken | host_inputs(self.metadata, taken))
        except BackendError as error:
            raise ProofFailed(f"{self.when}at {case} the result fails, and the source doesn't: {error}") from error

    def rounded(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return inputs as this candidate gets them, in the types that they had."""
        return {name: self._taken(name, array).astype(array.dtype) for name, array in inputs.items()}

    def _taken(self, name: str, array: np.ndarray) -> np.ndarray:
        return array.astype(self.inputs.get(name, array.dtype)) if is_float(array) else array

    def tolerance(self, actual: np.ndarray, expected: np.ndarray) -> Tolerance:
        """Return the tolerance of the coarsest of the types that two outputs have and that it computes in."""
        names = [array.dtype.name for array in (actual, expected) if is_float(array)]
        names += [self.dtype] if self.dtype else []
        found = [self.tolerances[name] for name in names if name in self.tolerances]
        return max(found, key=lambda tolerance: tolerance.value, default=tolerance_of(expected.dtype))
