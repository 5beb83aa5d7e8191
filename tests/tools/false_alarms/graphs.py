"""The reference models and the zoo at both opsets, with weights that differ from set to set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from maskport.export import export
from maskport.export.hf import load
from maskport.tools.builtin import BUILTINS
from torch import nn

from ...zoo.configs import EXPORTED
from ...zoo.models import Zoo

NAMES = (*BUILTINS, *EXPORTED)
# The default of PyTorch's exporter, and the first that has RotaryEmbedding and Attention.
OPSETS = (20, 23)
# How far a bias, or the weight of a norm, is moved.
STEP = 0.1


@dataclass(frozen=True)
class Graph:
    """A module and the file that was exported of it.

    Attributes
    ----------
    name, opset, weights
        Of the model, of the file, and which set of weights: 0 are the model's own.
    """

    name: str
    opset: int
    weights: int

    def build(self, folder: Path) -> tuple[nn.Module, dict[str, Any], Path]:
        """Return the module, its example inputs and its file, which is made if the folder doesn't hold it."""
        if self.name in BUILTINS:
            module, inputs, shapes = BUILTINS[self.name].build()
        else:
            module, inputs, shapes = load(Zoo(folder / "zoo")(self.name).folder.parent / "config")
        redraw(module, self.weights)
        path = folder / f"{self.name}-opset-{self.opset}-weights-{self.weights}.onnx"
        if not path.exists():
            new = path.with_suffix(".new")
            new.write_bytes(export(module, inputs, dynamic_shapes=shapes, opset_version=self.opset).serialize())
            new.rename(path)
        return module, inputs, path


def redraw(module: nn.Module, weights: int) -> None:
    """Draw the weights of a module anew, each matrix as wide as it was."""
    generator = torch.Generator().manual_seed(weights)
    with torch.no_grad():
        for parameter in module.parameters() if weights else ():
            drawn = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(drawn * parameter.std())
            else:
                parameter.add_(STEP * drawn)
