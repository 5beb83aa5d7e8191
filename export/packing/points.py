"""Where a mask is evaluated among tokens that were picked: their own positions, in their own row.

All values broadcast to [B, H, N, M]: N queries, M keys; of one row, B is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from ...models.mask_rows import Affine
from ..builder import Builder
from .tokens import Tokens

__all__ = ["Points"]

BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64


class Number:
    """A value with the operators that predicates use (see `models.mask_leaves.Points`)."""

    def __init__(self, build: Builder, value: ir.Value) -> None:
        self.build, self.value = build, value

    def _op(self, name: str, other: Any, dtype: ir.DataType | None = None) -> Number:
        value = other.value if isinstance(other, Number) else self.build.integer(int(other))
        return Number(self.build, self.build.op(name, self.value, value, dtype=dtype))

    def __add__(self, other: Any) -> Number:
        return self._op("Add", other)

    def __sub__(self, other: Any) -> Number:
        return self._op("Sub", other)

    def __floordiv__(self, other: Any) -> Number:
        return self._op("Div", other)

    def __le__(self, other: Any) -> Number:
        return self._op("LessOrEqual", other, BOOL)

    def __lt__(self, other: Any) -> Number:
        return self._op("Less", other, BOOL)

    def __eq__(self, other: object) -> Any:
        return self._op("Equal", other, BOOL)

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Number) -> Number:
        return self._op("And", other)

    def __or__(self, other: Number) -> Number:
        return self._op("Or", other)

    def __invert__(self) -> Number:
        return Number(self.build, self.build.op("Not", self.value))


class Points:
    """The points (b, h, q, k) of picked tokens.

    Parameters
    ----------
    tensors : mapping
        The mask's tensors, as the graph has them.
    queries, keys : ir.Value
        int64 [N] and [M]: positions in the sequence.
    row : ir.Value or None
        int64 [1]: which row it is; None for all rows at once, whose positions are alike.
    """

    def __init__(
        self,
        build: Builder,
        tensors: Mapping[str, ir.Value],
        tokens: Tokens,
        queries: ir.Value,
        keys: ir.Value,
        row: ir.Value | None,
    ) -> None:
        self.build, self.tensors, self.tokens = build, tensors, tokens
        self.queries, self.keys, self.row_index = queries, keys, row
        self.true = Number(build, build.constant([[[[True]]]], bool))
        self.q = Number(build, build.op("Unsqueeze", queries, build.ints(0, 1, 3)))
        # There is no cache.
        self.p = self.q
        self.k = Number(build, build.op("Unsqueeze", keys, build.ints(0, 1, 2)))
        self._loads: dict[tuple[str, str], Number] = {}

    def load(self, name: str, axes: str) -> Number:
        """Return a tensor of the mask at the points."""
        if (name, axes) not in self._loads:
            self._loads[name, axes] = Number(self.build, self._load(self.tensors[name], axes))
        return self._loads[name, axes]

    def _load(self, value: ir.Value, axes: str) -> ir.Value:
        b = self.build
        if axes == "bhqk":
            return self.pick(value)
        if value.dtype != INT64:
            value = b.op("Cast", value, to=INT64, dtype=INT64)
        for axis, letter in enumerate(axes):
            value = self._picked(value, axis, letter, value.shape)
        return b.op("Unsqueeze", value, b.ints(*(n for n, x in enumerate("bhqk") if x not in axes.replace("p", "q"))))

    def pick(self, value: ir.Value) -> ir.Value:
        """Return the part of a [B or 1, H or 1, Q or 1, K or 1] tensor that belongs to the points."""
        for axis, letter in enumerate("bhqk"):
            value = self._picked(value, axis, letter, value.shape)
        return value

    def _picked(self, value: ir.Value, axis: int, letter: str, shape: ir.Shape | None) -> ir.Value:
        index = {"b": self.row_index, "q": self.queries, "p": self.queries, "k": self.keys}.get(letter)
        if index is None or self.row_index is None or (shape is not None and shape[axis] == 1):
            return value
        picked = self.build.op("Gather", value, index, axis=axis)
        if shape is not None:
            picked.shape = ir.Shape([None if n == axis else d for n, d in enumerate(shape)])
        return picked

    def row(self, affine: Affine) -> Number:
        """Return a row argument: a number, lengths of the whole sequence, and a value of the row."""
        number = Number(self.build, self.build.integer(affine.const))
        for coefficient in (affine.q_len, affine.k_len):
            if coefficient:
                length = Number(self.build, self.build.op("Squeeze", self.tokens.length))
                number = number + length if coefficient > 0 else number - length
        return number if affine.row is None else number + self.load(affine.row, "b")

    def expanded(self, value: ir.Value) -> ir.Value:
        """Return a value whose last axes are those of queries and keys, and not 1."""
        b = self.build
        lengths = b.join(b.ints(1, 1), b.op("Shape", self.queries, dtype=INT64), b.op("Shape", self.keys, dtype=INT64))
        return b.op("Expand", value, lengths)
