"""Masks as ONNX: a model that computes a mask from its tensors and lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .mask_leaves import Expr, TensorSpec, evaluate, tensors_of
from .mask_rows import Affine

if TYPE_CHECKING:
    import onnx
    import onnx_ir

__all__ = ["to_onnx"]

LENGTHS = ("q_len", "k_len", "past")
# Unsqueeze takes its axes as an input from here on.
OLDEST_OPSET = 13
INT64 = 7  # onnx.TensorProto.INT64
_IR_VERSION = 10
_DIMENSIONS = {"b": "batch", "h": "heads", "q": "q_len", "k": "k_len"}


class _Value:
    """An ONNX value with the operators that predicates use."""

    def __init__(self, tape: Any, value: onnx_ir.Value) -> None:
        self.tape, self.value = tape, value

    def op(self, name: str, *operands: Any, **attributes: Any) -> _Value:
        inputs = [self.value, *(_constant(self.tape, operand).value for operand in operands)]
        return _Value(self.tape, self.tape.op(name, inputs, attributes or None))

    def __add__(self, other: Any) -> _Value:
        return self.op("Add", other)

    def __sub__(self, other: Any) -> _Value:
        return self.op("Sub", other)

    def __mul__(self, other: Any) -> _Value:
        return self.op("Mul", other)

    def __floordiv__(self, other: Any) -> _Value:
        # ONNX divides integers towards zero, which is the floor of a position: positions are not negative.
        return self.op("Div", other)

    def __le__(self, other: Any) -> _Value:
        return self.op("LessOrEqual", other)

    def __lt__(self, other: Any) -> _Value:
        return self.op("Less", other)

    def __eq__(self, other: object) -> Any:
        return self.op("Equal", other)

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Any) -> _Value:
        return self.op("And", other)

    def __or__(self, other: Any) -> _Value:
        return self.op("Or", other)

    def __invert__(self) -> _Value:
        return self.op("Not")


def _constant(tape: Any, value: Any) -> _Value:
    """Return `value` as an ONNX value: itself, or a Constant (int64, or bool)."""
    import onnx_ir as ir

    if isinstance(value, _Value):
        return value
    array = np.asarray(value)
    return _Value(
        tape,
        tape.op("Constant", [], {"value": ir.tensor(array if array.dtype == bool else array.astype(np.int64))}),
    )


class _Graph:
    """Points whose values are ONNX values, each broadcastable to [B, H, Q, K] (see mask_leaves.Points)."""

    def __init__(self, tape: Any, inputs: Mapping[str, onnx_ir.Value]) -> None:
        self.tape = tape
        self.inputs = {name: _Value(tape, value) for name, value in inputs.items()}
        self.q_len, self.k_len, self.past = (self.inputs[name] for name in LENGTHS)
        self.q = self._positions(self.q_len, (1, 1, -1, 1))
        self.k = self._positions(self.k_len, (1, 1, 1, -1))
        self.p = self.q + self.past
        self.true = _constant(tape, np.ones((1, 1, 1, 1), bool))
        self.loads: dict[tuple[str, str], _Value] = {}

    def _positions(self, length: _Value, shape: tuple[int, ...]) -> _Value:
        return _constant(self.tape, 0).op("Range", length, 1).op("Reshape", shape)

    def load(self, name: str, axes: str) -> _Value:
        if (name, axes) not in self.loads:
            self.loads[name, axes] = self._load(name, axes)
        return self.loads[name, axes]

    def _load(self, name: str, axes: str) -> _Value:
        value = self.inputs[name]
        if axes == "bhqk":
            return value
        if value.value.dtype != INT64:
            value = value.op("Cast", to=INT64)
        if axes == "bp":
            start, stop = (length.op("Reshape", [1]) for length in (self.past, self.past + self.q_len))
            value, axes = value.op("Slice", start, stop, [1]), "bq"
        return value.op("Unsqueeze", [axis for axis, letter in enumerate("bhqk") if letter not in axes])

    def row(self, affine: Affine) -> _Value:
        value = _constant(self.tape, affine.const)
        for length, coefficient in (
            (self.past, affine.past),
            (self.q_len, affine.q_len),
            (self.k_len, affine.k_len),
        ):
            if coefficient:
                value = value + length if coefficient > 0 else value - length
        return value if affine.row is None else value + self.load(affine.row, "b")


def to_onnx(expr: Expr, mask: object, opset_version: int, dtypes: Mapping[str, Any]) -> onnx.ModelProto:
    """Write an expression as an ONNX model; see `Mask.to_onnx`."""
    import onnx_ir as ir
    import onnx_ir.passes.common as passes

    if opset_version < OLDEST_OPSET:
        raise ValueError(f"a mask needs opset {OLDEST_OPSET} or later; got opset_version={opset_version}")
    specs = tensors_of(expr)
    if unknown := dtypes.keys() - specs.keys():
        has = ", ".join(specs) or "none"
        raise TypeError(f"the mask `{mask}` has no tensor {', '.join(sorted(unknown))}; its tensors: {has}")
    inputs = {name: ir.val(name, ir.DataType.INT64, ()) for name in LENGTHS}
    for name, spec in specs.items():
        inputs[name] = ir.val(name, _onnx_type(spec, dtypes.get(name)), [_DIMENSIONS[axis] for axis in spec.dims])
    tape = ir.tape.Tape()
    output = tape.op("Identity", [evaluate(expr, _Graph(tape, inputs)).value])
    output.name = "attend" if "attend" not in inputs else "attend_mask"
    output.type, output.shape = ir.TensorType(ir.DataType.BOOL), ir.Shape([None] * 4)
    graph = ir.Graph(list(inputs.values()), [output], nodes=tape.nodes, opset_imports={"": opset_version}, name="mask")
    model = ir.Model(graph, ir_version=_IR_VERSION, producer_name="maskport")
    passes.RemoveUnusedNodesPass()(model)
    return ir.to_proto(model)


def _onnx_type(spec: TensorSpec, dtype: Any) -> onnx_ir.DataType:
    import onnx_ir as ir

    if dtype is None:
        return ir.DataType.BOOL if spec.dims == "bhqk" else ir.DataType.INT64
    if np.dtype(dtype).kind.replace("u", "i") not in spec.kinds:
        raise ValueError(f"mask tensor {spec.name!r} is {spec.shape}; got dtype {np.dtype(dtype)}")
    return ir.DataType.from_numpy(np.dtype(dtype))
