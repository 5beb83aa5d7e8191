"""The module itself, as a function from arrays by name to arrays by name: the reference of the check."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from ..errors import ExportError
from ..tracing.module_state import evaluation, no_fast_path
from ..tracing.quiet import collected
from .arrays import to_numpy, to_torch

# A module with fewer weights runs on one thread: others would wait for it longer than they work.
SMALL = 1 << 22


class RefusedError(Exception):
    """The module itself can't take these inputs; the message is the first line of what it raised."""


class Eager:
    """A module in evaluation mode, without the fused inference path, whose padding rows and shapes differ.

    Parameters
    ----------
    module
        Given back as it was after every call.
    example_inputs
        Tensors and other values by name; the others are passed on as they are.
    output_names
        In the order of the tensors that the module returns.
    """

    def __init__(self, module: nn.Module, example_inputs: Mapping[str, Any], output_names: Sequence[str]) -> None:
        self.module, self.example_inputs, self.output_names = module, example_inputs, tuple(output_names)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the module.

        Raises
        ------
        RefusedError
            If the module raises.
        ExportError
            If it returns another number of tensors than the file has outputs.
        """
        tensors = {name: to_torch(array, self.example_inputs[name].device) for name, array in inputs.items()}
        with collected(), torch.no_grad(), evaluation(self.module), no_fast_path(), self._threads():
            try:
                returned = self.module(**{**self.example_inputs, **tensors})
            except Exception as error:
                first = (str(error).splitlines() or [""])[0]
                raise RefusedError(f"{type(error).__name__}: {first}") from error
        leaves = [leaf for leaf in pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]
        if len(leaves) != len(self.output_names):
            raise ExportError(
                f"{type(self.module).__name__} returns {len(leaves)} tensors in PyTorch, and the file has the outputs "
                f"{', '.join(self.output_names)}; return the same tensors for all inputs, and no sizes or numbers"
            )
        return {name: to_numpy(leaf) for name, leaf in zip(self.output_names, leaves, strict=True)}

    @contextlib.contextmanager
    def _threads(self) -> Iterator[None]:
        before = torch.get_num_threads()
        if sum(weight.numel() for weight in self.module.parameters()) < SMALL:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
