"""What the interpreter and its rules say of ONNX values: constants, kinds, names for people."""

from __future__ import annotations

from typing import Any, Protocol

import onnx_ir as ir

from . import terms as t
from .terms import Term

__all__ = ["Faulty", "Index", "NotFollowed", "Reader", "constant", "constant_of", "describe", "is_standard", "kind_of"]

Index = tuple[Term, ...]


class NotFollowed(Exception):
    """A value that can't be evaluated; the message says at which node and why."""


class Faulty(NotFollowed):
    """A mask that was followed and can't do what masks do; `fault` is "multiplied", "nan" or "weak"."""

    def __init__(self, fault: str, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class Reader(Protocol):
    """What a rule reads its operands by; see `Interpreter`."""

    def term(self, value: ir.Value, index: Index) -> Term: ...

    def shape(self, value: ir.Value) -> Index: ...

    def vector(self, value: ir.Value) -> list[Term]: ...

    def numbers(self, value: ir.Value) -> list[int]: ...


def constant_of(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer or of a Constant, else None."""
    return ir.convenience.get_const_tensor(value)


def constant(element: Any) -> Term:
    """Return a numpy scalar as a term."""
    if element.dtype == bool:
        return t.TRUE if element else t.FALSE
    if element.dtype.kind in "iu":
        return t.integer(int(element))
    return t.number(element)


def kind_of(value: ir.Value) -> str | None:
    """Return "bool", "int" or "float"."""
    dtype = value.dtype
    if dtype is None:
        return None
    if dtype == ir.DataType.BOOL:
        return "bool"
    return "float" if dtype.is_floating_point() else "int" if dtype.is_integer() else None


def is_standard(node: ir.Node) -> bool:
    """Return whether a node is an operator of ONNX itself."""
    return node.domain in ("", "ai.onnx")


def describe(value: ir.Value) -> str:
    """Name a value for people: itself and the operator that makes it."""
    node = value.producer()
    return f"{value.name!r} (from {node.op_type})" if node is not None else f"{value.name!r}"
