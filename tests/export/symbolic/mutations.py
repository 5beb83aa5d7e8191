"""Rewrites of a graph that change nothing of what it means: by libraries, and by ourselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper, version_converter

Rewrite = Callable[[onnx.ModelProto, Path], onnx.ModelProto]


def basic_optimization(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """ONNX Runtime's own, that every target gets: constants folded, common parts shared, what is idle removed."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "basic.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "basic.onnx")


def slim(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    onnxslim = pytest.importorskip("onnxslim", reason="onnxslim is not installed")
    return onnxslim.slim(model)


def script_optimizer(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    from onnxscript import optimizer

    return optimizer.optimize(model)


def next_opset(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """To the next version of the operators: 21, or 24."""
    from onnxscript import version_converter as script_converter

    version = next(entry.version for entry in model.opset_import if entry.domain == "")
    copied = ir.from_proto(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script_converter.convert_version(copied, version + 1, fallback=False)
    return ir.to_proto(copied)


def onnx_converter(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    version = next(entry.version for entry in model.opset_import if entry.domain == "")
    return version_converter.convert_version(model, version + 1)


LIBRARIES: dict[str, Rewrite] = {
    "basic optimization": basic_optimization,
    "onnxslim": slim,
    "onnxscript's optimizer": script_optimizer,
    "onnxscript's next opset": next_opset,
    "onnx's next opset": onnx_converter,
}


# Ours


def _rewritten(
    model: onnx.ModelProto, rewrite: Callable[[onnx.NodeProto, Callable[[str], str]], list[onnx.NodeProto] | None]
) -> onnx.ModelProto:
    """Put other nodes in the place of each for which `rewrite` returns some."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    nodes, count = [], 0

    def fresh(hint: str) -> str:
        nonlocal count
        count += 1
        return f"{hint}~{count}"

    for node in copied.graph.node:
        nodes += rewrite(node, fresh) or [node]
    del copied.graph.node[:]
    copied.graph.node.extend(nodes)
    return copied


def _copy(node: onnx.NodeProto, inputs: list[str], outputs: list[str]) -> onnx.NodeProto:
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:], made.output[:] = inputs, outputs
    return made


def commuted(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Operands the other way round."""
    mirrored = {"Less": "Greater", "Greater": "Less", "LessOrEqual": "GreaterOrEqual", "GreaterOrEqual": "LessOrEqual"}

    def rewrite(node: onnx.NodeProto, fresh: Callable[[str], str]) -> list[onnx.NodeProto] | None:
        if node.op_type not in ("Add", "Mul", "And", "Or", "Equal", "Max", "Min", *mirrored) or len(node.input) != 2:
            return None
        made = _copy(node, list(node.input)[::-1], list(node.output))
        made.op_type = mirrored.get(node.op_type, node.op_type)
        return [made]

    return _rewritten(model, rewrite)


def doubly_negated(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Each comparison and junction, negated twice."""

    def rewrite(node: onnx.NodeProto, fresh: Callable[[str], str]) -> list[onnx.NodeProto] | None:
        if node.op_type not in ("And", "Or", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"):
            return None
        a, b = fresh(node.output[0]), fresh(node.output[0])
        return [
            _copy(node, list(node.input), [a]),
            helper.make_node("Not", [a], [b]),
            helper.make_node("Not", [b], [node.output[0]]),
        ]

    return _rewritten(model, rewrite)


def de_morgan(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """`a and b` as `not (not a or not b)`, and the other way round; `a <= b` as `not (a > b)`."""
    opposite = {"Less": "GreaterOrEqual", "Greater": "LessOrEqual", "LessOrEqual": "Greater", "GreaterOrEqual": "Less"}

    def rewrite(node: onnx.NodeProto, fresh: Callable[[str], str]) -> list[onnx.NodeProto] | None:
        out = fresh(node.output[0])
        last = helper.make_node("Not", [out], [node.output[0]])
        if node.op_type in opposite:
            made = _copy(node, list(node.input), [out])
            made.op_type = opposite[node.op_type]
            return [made, last]
        if node.op_type not in ("And", "Or"):
            return None
        negated = [fresh(name) for name in node.input]
        nots = [helper.make_node("Not", [a], [b]) for a, b in zip(node.input, negated, strict=True)]
        return [*nots, helper.make_node({"And": "Or", "Or": "And"}[node.op_type], negated, [out]), last]

    return _rewritten(model, rewrite)


def added_for_chosen(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """`Where(c, 0, fill)` as `(1 - c) * fill`, where the fill is finite, and as nested choices where it is not."""
    constants = {
        **{entry.name: numpy_helper.to_array(entry) for entry in model.graph.initializer},
        **{
            node.output[0]: numpy_helper.to_array(node.attribute[0].t)
            for node in model.graph.node
            if node.op_type == "Constant" and node.attribute[0].name == "value"
        },
    }

    def rewrite(node: onnx.NodeProto, fresh: Callable[[str], str]) -> list[onnx.NodeProto] | None:
        if node.op_type != "Where" or any(name not in constants for name in node.input[1:]):
            return None
        zero, fill = (constants[name] for name in node.input[1:])
        if fill.dtype != np.float32 or fill.size != 1 or zero.size != 1 or zero != 0:
            return None
        kept, inverted, one, chosen = (fresh(node.output[0]) for _ in range(4))
        if not np.isfinite(fill):
            return [
                helper.make_node("Where", [node.input[0], *node.input[1:]], [kept]),
                helper.make_node("Where", [node.input[0], node.input[1], kept], [node.output[0]]),
            ]
        return [
            helper.make_node("Cast", [node.input[0]], [kept], to=onnx.TensorProto.FLOAT),
            helper.make_node("Constant", [], [one], value=numpy_helper.from_array(np.float32(1))),
            helper.make_node("Sub", [one, kept], [inverted]),
            helper.make_node("Identity", [node.input[2]], [chosen]),
            helper.make_node("Mul", [inverted, chosen], [node.output[0]]),
        ]

    return _rewritten(model, rewrite)


def unfolded(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Initializers as Constant nodes, and every small one passed through arithmetic that leaves it."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    nodes = []
    for entry in copied.graph.initializer:
        if np.prod(entry.dims) > 64 or entry.data_type not in (onnx.TensorProto.INT64, onnx.TensorProto.FLOAT):
            nodes.append(helper.make_node("Constant", [], [entry.name], value=entry))
            continue
        nothing = numpy_helper.from_array(np.zeros((), helper.tensor_dtype_to_np_dtype(entry.data_type)))
        nodes += [
            helper.make_node("Constant", [], [f"{entry.name}~a"], value=entry),
            helper.make_node("Constant", [], [f"{entry.name}~b"], value=nothing),
            helper.make_node("Add", [f"{entry.name}~a", f"{entry.name}~b"], [entry.name]),
        ]
    del copied.graph.initializer[:]
    kept = list(copied.graph.node)
    del copied.graph.node[:]
    copied.graph.node.extend([*nodes, *kept])
    return copied


def folded(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Constant nodes as initializers."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    kept = []
    for node in copied.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensor = node.attribute[0].t
            tensor.name = node.output[0]
            copied.graph.initializer.append(tensor)
        else:
            kept.append(node)
    del copied.graph.node[:]
    copied.graph.node.extend(kept)
    return copied


def renamed_and_reordered(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Values and nodes by numbers, without types or origins between, in another order that is as good."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    graph = copied.graph
    fixed = {value.name for value in (*graph.input, *graph.output)}
    names: dict[str, str] = {"": ""}

    def rename(name: str) -> str:
        return name if name in fixed else names.setdefault(name, f"v{len(names)}")

    for entry in graph.initializer:
        entry.name = rename(entry.name)
    for place, node in enumerate(graph.node):
        node.input[:], node.output[:] = map(rename, node.input), map(rename, node.output)
        node.name = f"n{place}"
        del node.metadata_props[:]
    del graph.value_info[:]
    _reorder(graph)
    return copied


def _reorder(graph: onnx.GraphProto) -> None:
    random = np.random.default_rng(1)
    nodes = list(graph.node)
    maker = {name: place for place, node in enumerate(nodes) for name in node.output}
    missing = [{maker[name] for name in node.input if name in maker} for node in nodes]
    users: dict[int, list[int]] = {}
    for place, makers in enumerate(missing):
        for made in makers:
            users.setdefault(made, []).append(place)
    ready, ordered = [place for place, makers in enumerate(missing) if not makers], []
    while ready:
        place = ready.pop(random.integers(len(ready)))
        ordered.append(nodes[place])
        for user in users.get(place, ()):
            missing[user].discard(place)
            if not missing[user]:
                ready.append(user)
    del graph.node[:]
    graph.node.extend(ordered)


EACH: dict[str, Rewrite] = {
    "commuted": commuted,
    "doubly negated": doubly_negated,
    "De Morgan": de_morgan,
    "added for chosen": added_for_chosen,
    "unfolded": unfolded,
    "folded": folded,
    "renamed and reordered": renamed_and_reordered,
}


def all_of_ours(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """One after the other."""
    for rewrite in EACH.values():
        model = rewrite(model, folder)
    return model


OURS: dict[str, Rewrite] = {**EACH, "all of them": all_of_ours}
