"""An eager module as the reference of a validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ..export.check.arrays import to_numpy
from ..export.check.eager import Eager, RefusedError
from ..export.check.lengths import windows_of
from ..export.errors import ExportError
from ..export.io_metadata import masks_of
from ..export.tracing.example_inputs import name_inputs
from .errors import Refused, ToolError


class EagerReference:
    """A module with its example inputs.

    Parameters
    ----------
    module
        Given back as it was after every call.
    example_inputs
        By name, or in the order of ``forward``'s parameters.
    output_names
        Names for the tensors that it returns.

    Attributes
    ----------
    examples : dict of str to array
        The tensors of the example.
    masks : list of Mask
        The mask expressions of the module.
    windows : list of (int, str)
        How far its windows reach, each with the name of what says so.

    Raises
    ------
    ToolError
        If the example inputs don't fit, or the module returns another number of tensors.
    """

    def __init__(
        self, module: nn.Module, example_inputs: Mapping[str, Any] | Sequence[Any] | None, output_names: Sequence[str]
    ) -> None:
        if example_inputs is None:
            raise ToolError("a module needs example_inputs: a dict of tensors by parameter name")
        try:
            inputs = name_inputs(module.forward, example_inputs)
        except ExportError as error:
            raise ToolError(str(error)) from error
        self.examples = {name: to_numpy(value) for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        self.masks = masks_of(module)
        self.windows = list(windows_of(module, self.masks))
        self._eager = Eager(module, inputs, output_names)
        try:
            self._eager(self.examples)
        except RefusedError as error:
            raise ToolError(f"the module fails on its own example: {error}") from error
        except ExportError as error:
            raise ToolError(
                f"the candidate has {len(output_names)} outputs ({', '.join(output_names)}), the module "
                "returns another number of tensors; is it the module that the file was made from?"
            ) from error

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the module.

        Raises
        ------
        Refused
            If it can't take the inputs.
        """
        try:
            return self._eager(inputs)
        except RefusedError as error:
            raise Refused(str(error)) from error
