"""Convert a float32 model to float16 or bfloat16, where that is safe node by node.

Three kinds of arithmetic stay in float32:

- numbers: what is computed from integers, truth values and small constants alone, such as positions, buckets, rotary
  angles and additive masks. In half precision integers above 2048 (or 256) are not exact, and ``M * -1e9`` is NaN.
- sums and powers, and what is scaled by them: of these norms are made, whose squares overflow, and whose epsilon is
  zero in half precision.
- operators that have no half-precision form.

Numbers that meet activations are cast there; where some are too large for a sum, as the fills of masks are, they are
bounded before. ONNX Runtime's converter casts every result of a node that stays in float32, so that such numbers would
pass through half precision between two nodes; it knows no bfloat16 either.
"""

from __future__ import annotations

__all__ = ["to_precision"]

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx import defs
from onnx_ir.passes import common

from .lowering.numbers import fill

FLOAT = ir.DataType.FLOAT
DTYPES = {"float16": ir.DataType.FLOAT16, "bfloat16": ir.DataType.BFLOAT16}
# Elements of a constant of one axis that may be a number; anything else is a weight.
MOST_NUMBERS = 4096
SUMS = {
    *("CumSum", "Pow", "Reciprocal", "Sqrt"),
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum"),
    "ReduceSumSquare",
}
# What these compute of results that stay in float32 stays there, too.
FOLLOWS = {
    *("Abs", "Add", "Ceil", "Clip", "Cos", "Div", "Exp", "Floor", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Round"),
    *("Sigmoid", "Sign", "Sin", "Sub", "Tanh", "Where"),
    *("Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose"),
    "Unsqueeze",
}
# com.microsoft's operators without a half-precision form: the quantized ones.
FULL_ONLY = ("DynamicQuantize", "MatMulIntegerToFloat", "QAttention", "QEmbed", "QGemm", "QLinear")
# Inputs and outputs that are float32 in any case, by operator.
FULL_INPUTS = {"GroupQueryAttention": (12, 13), "Resize": (1, 2)}
FULL_OUTPUTS = dict.fromkeys(
    ("LayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), (1, 2)
)
BRANCHING = ("If", "Loop", "Scan", "SequenceMap")


@dataclass(frozen=True)
class _Full:
    """What is known of a value that stays in float32."""

    number: bool = False
    large: bool = False


def to_precision(model: ir.Model, dtype: str) -> ir.Model:
    """Return a model whose float32 weights, activations, inputs and outputs are of half precision.

    Inputs and outputs that were float32 have the new type, as those of a module that is exported in it have. Integers,
    names, shapes and metadata stay as they are.

    Parameters
    ----------
    model : onnx_ir.Model
        It is not changed. Its functions are inlined, and its values have types, at least where shape inference can't
        tell them.
    dtype : str
        ``"float16"`` or ``"bfloat16"``.

    Returns
    -------
    onnx_ir.Model
        The model itself where nothing in it is float32. Finite fills below -3e4 are -3e4 in float16, so that two of
        them and a score can be added.

    Raises
    ------
    ValueError
        If the type is another, or the model has functions.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; give one of {', '.join(DTYPES)}")
    if model.functions:
        raise ValueError("the model has functions; inline them first, with onnx_ir.passes.common.InlinePass")
    converted = model.clone()
    common.ShapeInferencePass()(converted)
    if not any(_is_float(value) for value in _values(converted)):
        return model
    _Converter(converted, dtype).graph(converted.graph)
    common.RemoveUnusedNodesPass()(converted)
    return converted


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs


def _is_float(value: ir.Value | None) -> bool:
    return value is not None and value.dtype == FLOAT


class _Converter:
    def __init__(self, model: ir.Model, dtype: str) -> None:
        self.half, self.limit = DTYPES[dtype], -fill(dtype)
        self.opsets = model.opset_imports
        self.given = {value for value in _values(model) if value.dtype == self.half}
        self.full: dict[ir.Value, _Full] = {}
        # Each use of a constant takes the type that it needs.
        self.constants: dict[ir.Value, _Full] = {}
        self.cast: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def graph(self, graph: ir.Graph) -> None:
        """Convert a graph in place; its float32 inputs and outputs become half."""
        for value in graph.initializers.values():
            if _is_float(value) and not value.is_graph_input():
                self.constants[value] = self._described(value)
        for value in graph.inputs:
            if _is_float(value):
                value.type = self._half_type(value)
                if value.const_value is not None:
                    value.const_value = self._half_tensor(value)
        for node in list(graph):
            self._node(node)
        for index, value in enumerate(graph.outputs):
            if _is_float(value):
                graph.outputs[index] = self._half_output(value)

    def _node(self, node: ir.Node) -> None:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                self.graph(attribute.as_graph())
        floats = [value for value in node.inputs if value is not None and value.dtype in (FLOAT, self.half)]
        for index, value in enumerate(node.outputs):
            if value.dtype is None and floats and self._is_of_its_inputs(node, index):
                value.type = ir.TensorType(FLOAT)
        if not floats and not any(_is_float(value) for value in node.outputs):
            return
        # What gives half precision in the source does so still: a power, for one, of a half and a float32 exponent.
        halved = node.op_type != "Cast" and any(value.dtype == self.half for value in node.outputs)
        kept = None if halved else self._kept(node)
        full = FULL_INPUTS.get(node.op_type, ()) if kept is None else range(len(node.inputs))
        for index, given in enumerate(node.inputs):
            wanted = FLOAT if index in full else self.half
            if given is not None and given.dtype in (FLOAT, self.half) and given.dtype != wanted:
                node.replace_input_with(index, self._to(given, wanted))
        if kept is None and node.op_type == "Cast" and node.attributes.get_int("to") == FLOAT:
            node.attributes["to"] = ir.AttrInt64("to", self.half)
        full = FULL_OUTPUTS.get(node.op_type, ()) if kept is None else range(len(node.outputs))
        for index, value in enumerate(node.outputs):
            if _is_float(value) and index in full:
                self.full[value] = kept or _Full()
            elif _is_float(value):
                value.type = self._half_type(value)

    def _kept(self, node: ir.Node) -> _Full | None:
        """Return what is known of a node's results if it stays in float32, else None."""
        if node.op_type in BRANCHING or any(isinstance(value.type, ir.SequenceType) for value in node.outputs):
            # What it holds can't be cast.
            return None
        inputs = [value for value in node.inputs if value is not None and value.dtype in (FLOAT, self.half)]
        known = [self.full.get(value) or self.constants.get(value) for value in inputs]
        if all(value is not None and value.number for value in known):
            if node.op_type == "DequantizeLinear":
                return None
            made = [*known, self._described(node.outputs[0])]
            return _Full(number=True, large=any(value is not None and value.large for value in made))
        computed = [value for value in inputs if value not in self.constants]
        full = [self.full[value] for value in computed if value in self.full]
        if node.domain != "":
            keeps = node.op_type.startswith(FULL_ONLY)
        elif node.op_type == "Cast":
            # Of a model that is half precision already, or from a result that stays.
            keeps = computed[0] in (self.full if node.attributes.get_int("to") != FLOAT else self.given)
        else:
            squares = node.op_type == "Mul" and node.inputs[0] is node.inputs[1]
            scales = node.op_type in ("Mul", "Div") and any(not value.number for value in full)
            follows = node.op_type in FOLLOWS and 0 < len(full) == len(computed)
            keeps = node.op_type in SUMS or squares or scales or follows or not self._has_half_form(node)
        return _Full() if keeps else None

    def _schema(self, node: ir.Node) -> defs.OpSchema | None:
        try:
            return defs.get_schema(
                node.op_type, self.opsets.get(node.domain, self.opsets.get("ai.onnx", 1)), node.domain
            )
        except defs.SchemaError:
            return None

    def _is_of_its_inputs(self, node: ir.Node, index: int) -> bool:
        """Whether a result has the type of a floating input, as far as is known."""
        schema = self._schema(node)
        if schema is None:
            return True
        result = schema.outputs[min(index, len(schema.outputs) - 1)].type_str
        formal = list(schema.inputs)
        return any(
            formal[min(place, len(formal) - 1)].type_str == result
            for place, value in enumerate(node.inputs)
            if value is not None and value.dtype in (FLOAT, self.half)
        )

    def _has_half_form(self, node: ir.Node) -> bool:
        schema = self._schema(node)
        if schema is None:
            return True
        fixed = FULL_INPUTS.get(node.op_type, ())
        formal = list(schema.inputs)
        for index, value in enumerate(node.inputs):
            # The last formal input of a variadic operator stands for all that follow.
            types = formal[min(index, len(formal) - 1)].types
            if value is None or value.dtype not in (FLOAT, self.half) or index in fixed:
                continue
            if self._written(value) not in types:
                return False
        return all(
            self._written(value) in one.types
            for one, value in zip(schema.outputs, node.outputs, strict=False)
            if _is_float(value)
        )

    def _half_type(self, value: ir.Value) -> ir.TypeProtocol:
        """Return the type that a value would have: a sequence stays one."""
        half = ir.TensorType(self.half)
        return ir.SequenceType(half) if isinstance(value.type, ir.SequenceType) else half

    def _written(self, value: ir.Value) -> str:
        """Return that type as schemas write it."""
        tensor = f"tensor({self.half.name.lower()})"
        return f"seq({tensor})" if isinstance(value.type, ir.SequenceType) else tensor

    def _described(self, value: ir.Value) -> _Full:
        """Return what is known of a constant; of any other value, nothing is said."""
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is None or tensor.dtype != FLOAT:
            return _Full()
        array = tensor.numpy()
        large = bool((np.abs(array[np.isfinite(array)]) > self.limit).any())
        return _Full(array.size <= MOST_NUMBERS and sum(size > 1 for size in array.shape) <= 1, large)

    def _to(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return a value in a type: once for all that use it."""
        key = value, dtype
        if key not in self.cast:
            if value in self.constants:
                self.cast[key] = self._half_constant(value)
            else:
                self.cast[key] = self._casting(value, dtype)
        return self.cast[key]

    def _half_constant(self, value: ir.Value) -> ir.Value:
        graph = value.graph
        assert graph is not None
        name = f"{value.name}.{self.half.name.lower()}"
        while name in graph.initializers:
            name += "'"
        tensor = self._half_tensor(value)
        half = ir.Value(name=name, shape=value.shape, type=ir.TensorType(self.half), const_value=tensor)
        graph.register_initializer(half)
        return half

    def _half_tensor(self, value: ir.Value) -> ir.TensorProtocol:
        assert value.const_value is not None
        array = value.const_value.numpy()
        bounded = np.where(np.isfinite(array), np.clip(array, -self.limit, self.limit), array)
        return ir.tensor(bounded.astype(self.half.numpy()), name=value.name)

    def _casting(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        known = self.full.get(value, _Full())
        tape = ir.tape.Tape()
        source = value
        if dtype == self.half and known.large:
            low, high = (
                tape.op("Constant", [], {"value": ir.tensor(np.float32(limit))}) for limit in (-self.limit, self.limit)
            )
            source = tape.op("Clip", [value, low, high])
            source.dtype, source.shape = FLOAT, value.shape
            for limit in (low, high):
                limit.dtype, limit.shape = FLOAT, ir.Shape([])
        result = tape.op("Cast", [source], {"to": dtype})
        result.dtype, result.shape = dtype, value.shape
        producer, graph = value.producer(), value.graph
        assert graph is not None
        if producer is not None:
            for node in tape.nodes:
                node.metadata_props.update(producer.metadata_props)
            graph.insert_after(producer, tape.nodes)
        else:
            graph.insert_before(graph[0], tape.nodes)
        return result

    def _half_output(self, value: ir.Value) -> ir.Value:
        """Return an output in half precision that has the name of one in float32."""
        half, name = self._to(value, self.half), value.name
        if not value.is_initializer():
            value.name = f"{name}.float32"
        half.name = name
        return half
