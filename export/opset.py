"""Raise the operator set of a model, where the operators that it uses mean the same in both."""

from __future__ import annotations

__all__ = ["raise_opset"]

from dataclasses import dataclass

import onnx_ir as ir
from onnx import defs

OPTIONAL = defs.OpSchema.FormalParameterOption.Optional
# The first version of the file format that tells all that these operator sets have.
IR_VERSION = 10
# Before it, Squeeze, Unsqueeze, ReduceSum and Softmax have other attributes and meanings.
OLDEST = 13
# Files may give the default domain this name, too.
OTHER_NAME = "ai.onnx"


@dataclass(frozen=True)
class Change:
    """Operator set in which an operator got another meaning; `where` is the attribute that has to be set for it."""

    version: int
    what: str
    where: str | None = None


IGNORES_WINDOWS = "with ceil_mode, windows that begin in the padding are left out"
# What signatures don't tell, from the texts of the operators, 13 to 24.
CHANGES = {
    "AveragePool": Change(22, IGNORES_WINDOWS, "ceil_mode"),
    "GroupNormalization": Change(21, "scale and bias are per channel, not per group"),
    "LpPool": Change(22, IGNORES_WINDOWS, "ceil_mode"),
    "MaxPool": Change(22, IGNORES_WINDOWS, "ceil_mode"),
    "RoiAlign": Change(16, "coordinates are shifted by half a pixel"),
}
AXES_BECOME_INPUT = 18
REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
)
EQUAL_PARTS_ARE_COUNTED = 18


def raise_opset(model: ir.Model, to: int = 24) -> str | None:
    """Raise the default domain's operator set in place; other domains, names and metadata stay.

    Each operator's signatures in both sets are compared, and :data:`CHANGES` has what signatures don't show: it is
    raised only if nothing that the model uses changed its meaning. onnx's own converter drops the metadata of nodes,
    from which sites have their names, and onnxscript's begins at 18 and passes over what it can't adapt.

    Parameters
    ----------
    model : onnx_ir.Model
        Its functions are inlined.
    to : int
        Operator set to reach. A model that has it, or a later one, is left as it is.

    Returns
    -------
    str or None
        None if the model has at least that operator set now; else the reason why not, and the model is unchanged.
    """
    imports = model.opset_imports
    version = imports.get("", imports.get(OTHER_NAME, to))
    if version >= to:
        return None
    if version < OLDEST:
        return f"operator set {version} is older than {OLDEST}"
    if to > defs.onnx_opset_version():
        return f"the installed onnx knows no operator set {to}"
    if model.functions:
        return "the model has functions, which are to be inlined first"
    nodes = [node for node in model.graph.all_nodes() if node.domain == ""]
    for node in nodes:
        if reason := _obstacle(node, version, to):
            return reason
    for node in nodes:
        _adapt(node, version, to)
    imports.pop(OTHER_NAME, None)
    imports[""] = to
    model.ir_version = max(model.ir_version, IR_VERSION)
    return None


def _obstacle(node: ir.Node, version: int, to: int) -> str | None:
    """Return why a node would not mean the same, or None."""
    name = node.op_type
    change = CHANGES.get(name)
    if change and version < change.version <= to and (change.where is None or change.where in node.attributes):
        return f"{name} changed in operator set {change.version}: {change.what}"
    try:
        old, new = defs.get_schema(name, version, ""), defs.get_schema(name, to, "")
    except defs.SchemaError:
        return f"{name} is no operator of set {version} or {to}"
    if new.deprecated:
        return f"{name} is no operator of set {to}"
    moves = name in REDUCTIONS and version < AXES_BECOME_INPUT <= to
    if old.since_version == new.since_version or (_takes_what(old, new) and (moves or _has_attributes_of(old, new))):
        return None
    return f"{name} has another signature in operator set {to}"


def _takes_what(old: defs.OpSchema, new: defs.OpSchema) -> bool:
    """Whether an operator takes the inputs of an older one, gives its outputs, and needs no more."""
    if len(new.outputs) != len(old.outputs) or any(value.option != OPTIONAL for value in new.inputs[len(old.inputs) :]):
        return False
    pairs = [*zip(old.inputs, new.inputs, strict=False), *zip(old.outputs, new.outputs, strict=True)]
    return len(new.inputs) >= len(old.inputs) and all(
        one.option == two.option and one.types <= two.types for one, two in pairs
    )


def _has_attributes_of(old: defs.OpSchema, new: defs.OpSchema) -> bool:
    """Whether an operator has the attributes of an older one, with the same defaults, and needs no more."""
    kept = all(
        name in new.attributes
        and attribute.type == new.attributes[name].type
        and attribute.default_value == new.attributes[name].default_value
        for name, attribute in old.attributes.items()
    )
    return kept and not any(new.attributes[name].required for name in new.attributes.keys() - old.attributes.keys())


def _adapt(node: ir.Node, version: int, to: int) -> None:
    """Write a node as the newer operator set does."""
    if node.op_type in REDUCTIONS and version < AXES_BECOME_INPUT <= to and "axes" in node.attributes:
        tape = ir.tape.Tape()
        values = node.attributes.pop("axes").as_ints()
        axes = tape.op("Constant", [], {"value_ints": values})
        axes.dtype, axes.shape = ir.DataType.INT64, ir.Shape([len(values)])
        assert node.graph is not None
        node.graph.insert_before(node, tape.nodes)
        node.resize_inputs(2)
        node.replace_input_with(1, axes)
    if node.op_type == "Split" and version < EQUAL_PARTS_ARE_COUNTED <= to and not any(node.inputs[1:]):
        node.attributes["num_outputs"] = ir.AttrInt64("num_outputs", len(node.outputs))
