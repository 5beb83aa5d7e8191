"""What every twin has in common."""

from __future__ import annotations

import warnings

import numpy as np
from onnx.reference.op_run import OpRun

__all__ = ["KernelsDisagree", "Twin", "rounded", "widened"]


class KernelsDisagree(UserWarning):
    """A kernel of ONNX Runtime departs from the documentation here; the twin keeps to the documentation.

    ``warnings.simplefilter("error", KernelsDisagree)`` makes it an error.
    """


class Twin(OpRun):
    """An operator of ``com.microsoft`` in numpy."""

    op_domain = "com.microsoft"
    # Without it, onnx.reference takes attributes of any operator of that name in ai.onnx.
    op_schema = None

    def require(self, holds: object, expected: str) -> None:
        """Raise ValueError, which names the operator and node, unless what is expected holds."""
        if not holds:
            raise ValueError(f"{self._described()}: {expected}")

    def given(self, array: np.ndarray | None, name: str) -> np.ndarray:
        """Return an input, or raise ValueError if it was left out."""
        if array is None:
            raise ValueError(f"{self._described()}: expected {name}")
        return array

    def disagree(self, how: str) -> None:
        """Warn that ONNX Runtime's kernels differ."""
        warnings.warn(f"{self._described()}: {how}", KernelsDisagree, stacklevel=2)

    def wired(self, place: int) -> bool:
        """Whether the node gives its output at a place."""
        return len(self.output) > place and bool(self.output[place])

    def _described(self) -> str:
        return f"{self.domain}.{self.op_type} {self.onnx_node.name!r}"


def widened(array: np.ndarray) -> np.ndarray:
    """Return an array as float32, or as float64 if it is that."""
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)


def rounded(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return an array in an element type; what is too large becomes infinite, as it does in a kernel."""
    return array.astype(dtype, copy=False)
