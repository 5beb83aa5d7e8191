"""GatherElements of ONNX, which onnx.reference gets wrong where the gathered axis is longer than 64."""

from __future__ import annotations

import numpy as np

from .twin import Twin

__all__ = ["GatherElements"]


class GatherElements(Twin):
    """Elements along an axis, by their indices there; negative ones count from the end."""

    op_domain = ""

    def _run(self, data: np.ndarray, indices: np.ndarray, axis: int = 0) -> tuple[np.ndarray]:
        # The other axes of the indices may be shorter than the data's.
        at = axis % data.ndim
        within = tuple(slice(None if i == at else size) for i, size in enumerate(indices.shape))
        return (np.take_along_axis(data[within], indices, at),)
