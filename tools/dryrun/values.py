"""Values that the host reads back from the device, computed on the CPU: they decide shapes and branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import onnx

    from .trace import Action


class ReadBack(NamedTuple):
    """What an operator copies to the host.

    Attributes
    ----------
    input
        Place of the input that decides it.
    value
        From that input's array to what is copied.
    """

    input: int
    value: Callable[[np.ndarray], np.ndarray]


def _count(array: np.ndarray) -> np.ndarray:
    return np.array(np.count_nonzero(array), np.int32)


def _tokens(counts: np.ndarray) -> np.ndarray:
    return np.array([counts.sum(), counts.max(initial=0)], np.int32)


def _outside(offsets: np.ndarray) -> np.ndarray:
    return np.array(((offsets < 0) | (offsets >= offsets.size)).any(), np.int32)


READ_BACKS = {
    "MemcpyToHost": ReadBack(0, lambda array: array),
    "NonZero": ReadBack(0, _count),
    "Compress": ReadBack(1, _count),
    "RemovePadding": ReadBack(1, _tokens),
    "RestorePadding": ReadBack(1, _outside),
}
COPY_NODES = {"MemcpyToHost", "MemcpyFromHost"}


class Values:
    """The tensors of a model, computed when they are asked for.

    Parameters
    ----------
    model
        The model as it was given, without its external data, and the folder of that data.
    optimized
        What ONNX Runtime made of it, as it saved it.
    inputs
        Arrays by name.
    """

    def __init__(self, model: onnx.ModelProto, folder: Path, optimized: Path, inputs: Mapping[str, np.ndarray]) -> None:
        import onnx

        made = onnx.load(optimized, load_external_data=False)
        # The given model first: its operators run in more places.
        self._models = [(model, folder), (made, optimized.parent)]
        self._nodes = {node.name: node for node in made.graph.node}
        self._inputs = inputs
        self._known: dict[str, np.ndarray | None] = {}

    def read_back(self, action: Action) -> bytes | None:
        """Return what a copy to the host brings, None if that isn't known."""
        node, rule = self._nodes.get(action.node or ""), READ_BACKS.get(action.op_type or "")
        if node is None or rule is None or rule.input >= len(node.input):
            return None
        array = self._tensor(node.input[rule.input])
        if array is None:
            return None
        data = rule.value(array).tobytes()
        return data if len(data) == action.bytes else None

    def _tensor(self, name: str) -> np.ndarray | None:
        if name in self._inputs:
            return self._inputs[name]
        if name not in self._known:
            found = (_compute(model, folder, name, self._inputs) for model, folder in self._models)
            self._known[name] = next((array for array in found if array is not None), None)
        return self._known[name]


def answers(actions: Sequence[Action], values: Values) -> list[str | None]:
    """Return what each copy to the host within the nodes brings, as hexadecimal digits, None for what isn't known."""
    read = [action for action in actions if action.answered is not None]
    found = [values.read_back(action) for action in read]
    return [None if data is None else data.hex() for data in found]


def _compute(model: onnx.ModelProto, folder: Path, name: str, inputs: Mapping[str, np.ndarray]) -> np.ndarray | None:
    from onnx.external_data_helper import load_external_data_for_model

    from ...export.twins import evaluate

    part = part_that_makes(model, name)
    if part is None:
        return None
    load_external_data_for_model(part, str(folder))
    feeds = {value.name: inputs[value.name] for value in part.graph.input}
    for run in (_on_cpu, evaluate):
        try:
            return np.asarray(run(part, feeds)[name])
        except Exception:
            # Whatever either says of a part of a model, the report names what was not known.
            continue
    return None


def _on_cpu(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def part_that_makes(model: onnx.ModelProto, name: str) -> onnx.ModelProto | None:
    """Return the part of a model whose only output is one of its tensors; None if the main graph doesn't make it."""
    import onnx

    graph = model.graph
    makers = {output: place for place, node in enumerate(graph.node) for output in node.output if output}
    constants = {tensor.name for tensor in graph.initializer}
    if name not in makers and name not in constants:
        return None
    needed, open_names, places = set(), [name], set()
    while open_names:
        current = open_names.pop()
        if current in needed:
            continue
        needed.add(current)
        if current in makers and makers[current] not in places:
            places.add(makers[current])
            open_names.extend(_reads(graph.node[makers[current]]))
    part = onnx.ModelProto(ir_version=model.ir_version)
    part.opset_import.extend(model.opset_import)
    part.functions.extend(model.functions)
    part.graph.name = "part"
    for place in sorted(places):
        node = part.graph.node.add()
        node.CopyFrom(graph.node[place])
        if node.op_type in COPY_NODES:
            node.op_type, node.domain = "Identity", ""
    part.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in needed)
    part.graph.input.extend(value for value in graph.input if value.name in needed and value.name not in constants)
    part.graph.output.append(onnx.ValueInfoProto(name=name))
    return part


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the tensors that a node reads, also from within its branches."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _reads(inner)
