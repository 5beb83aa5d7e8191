"""What every repair is: nodes that it finds, and what it does with them."""

from __future__ import annotations

__all__ = ["RepairPass"]

import abc
from collections.abc import Mapping
from typing import Generic, TypeVar

import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

Known = TypeVar("Known")


class RepairPass(InPlacePass, Generic[Known]):
    """A pass that finds the nodes it would repair before it changes any."""

    @abc.abstractmethod
    def find(self, model: ir.Model) -> dict[ir.Node, Known]:
        """Return the nodes that need the repair, with what it takes to do it; the model is left as it is."""

    @abc.abstractmethod
    def mend(self, found: Mapping[ir.Node, Known]) -> None:
        """Repair the nodes in place."""

    def call(self, model: ir.Model) -> PassResult:
        """Repair the model; it is modified if a node needed it."""
        found = self.find(model)
        self.mend(found)
        return PassResult(model, modified=bool(found))
