"""An eager module as the reference of a validation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import nn

from ...export.cases.draw import is_float
from ...export.check.arrays import to_numpy
from ...export.check.eager import Eager, RefusedError
from ...export.check.lengths import windows_of
from ...export.errors import ExportError
from ...export.io_metadata import masks_of
from ...export.tracing.example_inputs import name_inputs
from ..errors import Refused, ToolError

# Attributes of transformers' configurations that hold the longest row.
LARGEST = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "n_ctx")
# A copy in another precision of more weights is not made.
MOST_BYTES = 1 << 31

Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


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
    largest : int or None
        The longest row that its configuration allows.
    dtype : str
        Of its weights.

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
        self.largest = _largest(module)
        weights = [weight.dtype for weight in module.parameters() if weight.is_floating_point()]
        self.dtype = str(weights[0] if weights else torch.float32).removeprefix("torch.")
        self._module, self._inputs = module, inputs
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

    def in_precision(self, name: str) -> Run | None:
        """Return what runs a copy of the module in another precision; None if it is too large, or can't be copied.

        Parameters
        ----------
        name
            An element type: inputs are brought to it. The copy may refuse (`Refused`) what the module takes.
        """
        if sum(weight.nbytes for weight in self._module.parameters()) > MOST_BYTES:
            return None
        dtype = getattr(torch, name)
        try:
            module = copy.deepcopy(self._module).to(dtype)
        except Exception:
            return None
        inputs = {
            given: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for given, value in self._inputs.items()
        }
        eager = Eager(module, inputs, self._eager.output_names)

        def run(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            try:
                return eager({given: brought(array, name) for given, array in arrays.items()})
            except (RefusedError, ExportError) as error:
                raise Refused(str(error)) from error

        return run


def brought(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return floating-point numbers in another element type, and anything else as it is."""
    wanted = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    return array.astype(wanted) if is_float(array) else array


def _largest(module: nn.Module) -> int | None:
    config = getattr(module, "config", None)
    found = [value for name in LARGEST if isinstance(value := getattr(config, name, None), int) and value > 0]
    return min(found, default=None)
