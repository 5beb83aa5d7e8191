"""One number that stands for what a model computes: not for its metadata, its names, or how it is written down."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from ..check.checked import CERTIFICATE_KEY

METHOD = "sha256"
STANDARD = ("", "ai.onnx")


def digest_of(model: ir.Model) -> str:
    """Return the digest of a model.

    It covers the operators with their versions and attributes, which value goes where, the weights bit by bit, and the
    names and element types of inputs and outputs. It is the same after a file was read and written again, with its
    weights inside or beside it: names of nodes, of weights and of values between nodes, metadata, declared shapes and
    documentation don't count. The order of the nodes does.
    """
    hasher = hashlib.sha256()
    nodes = [*model.graph.all_nodes(), *(node for each in model.functions.values() for node in each.all_nodes())]
    versions = {_domain(domain): version for domain, version in model.opset_imports.items()}
    said: list[object] = [[(d, versions.get(d)) for d in sorted({_domain(node.domain) for node in nodes})]]
    said += [(value.name, str(value.dtype)) for value in (*model.graph.inputs, *model.graph.outputs)]
    said += _graph(model.graph, {}, 0)
    for key, function in sorted(model.functions.items()):
        said += [key, sorted(function.attributes), *_graph(function, {}, 0)]
    for entry in said:
        hasher.update(repr(entry).encode() + b"\n")
    return f"{METHOD}:{hasher.hexdigest()}"


def is_as_checked(model: ir.Model) -> bool:
    """Return whether a model is the one that its certificate is of."""
    try:
        certificate = json.loads(model.metadata_props.get(CERTIFICATE_KEY, "{}"))
    except ValueError:
        return False
    return isinstance(certificate, dict) and certificate.get("digest") == digest_of(model)


def _graph(graph: ir.Graph | ir.Function, outer: Mapping[ir.Value, str], depth: int) -> Iterator[object]:
    """Yield what a graph says; `outer` names the values of the graphs around it."""
    names = dict(outer)
    if isinstance(graph, ir.Graph):
        for value in graph.initializers.values():
            names[value] = f"{depth}:weight {_tensor(value.const_value)}"
    for place, value in enumerate(graph.inputs):
        # An input may have a default.
        yield (place, names.get(value))
        names[value] = f"{depth}:input {place}"
    for place, node in enumerate(graph):
        inputs = [None if value is None else names.get(value) for value in node.inputs]
        yield (_domain(node.domain), node.op_type, node.overload, inputs, len(node.outputs))
        for name, attribute in sorted(node.attributes.items()):
            yield (name, attribute.type.name, attribute.ref_attr_name)
            yield from _attribute(attribute, names, depth)
        names |= {value: f"{depth}:{place}.{output}" for output, value in enumerate(node.outputs)}
    yield [names.get(value) for value in graph.outputs]


def _attribute(attribute: ir.Attr, names: Mapping[ir.Value, str], depth: int) -> Iterator[object]:
    kind, value = attribute.type, attribute.value
    if kind == ir.AttributeType.TENSOR:
        yield _tensor(value)
    elif kind == ir.AttributeType.TENSORS:
        yield [_tensor(tensor) for tensor in value]
    elif kind == ir.AttributeType.GRAPH:
        yield from _graph(value, names, depth + 1)
    elif kind == ir.AttributeType.GRAPHS:
        for graph in value:
            yield from _graph(graph, names, depth + 1)
    elif kind in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):
        # As they are written: a number in memory may be finer.
        yield np.asarray(value, np.float32).tolist()
    else:
        yield list(value) if isinstance(value, list | tuple) else value


def _tensor(tensor: ir.TensorProtocol | None) -> str | None:
    """Return the digest of a tensor: one after the other, so that no more than one is in memory."""
    if tensor is None:
        return None
    hasher = hashlib.sha256(f"{tensor.dtype} {[int(size) for size in tensor.shape.numpy()]}".encode())
    if tensor.dtype == ir.DataType.STRING:
        hasher.update(repr(tensor.numpy().tolist()).encode())
    else:
        hasher.update(tensor.tobytes())
    return hasher.hexdigest()


def _domain(domain: str) -> str:
    return "" if domain in STANDARD else domain
