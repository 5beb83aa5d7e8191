"""Values that the host reads back from the device, computed on the CPU: they decide shapes and branches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .recorded import record

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
# It reads its own condition after each turn.
LOOP = "Loop"


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
        self._recorded: dict[str, dict[tuple[str, ...], list[np.ndarray]]] = {}

    def read_backs(self, actions: Sequence[Action]) -> list[bytes | None]:
        """Return what each copy to the host within the nodes brings, in order, None for what isn't known."""
        times: Counter[tuple[str, ...]] = Counter()
        found: list[bytes | None] = []
        for action in actions:
            if action.answered is None:
                continue
            if action.node is None or action.op_type is None:
                found.append(None)
                continue
            path, rule = (*action.within, action.node), READ_BACKS.get(action.op_type)
            if action.within or action.op_type == LOOP:
                recorded = self._record(path[0]).get(path, [])
                array = recorded[times[path]] if times[path] < len(recorded) else None
                times[path] += 1
            else:
                array = None if rule is None else self._input(action.node, rule.input)
            data = None if array is None else (array if rule is None else rule.value(array)).tobytes()
            found.append(data if data is not None and len(data) == action.bytes else None)
        return found

    def _input(self, name: str, place: int) -> np.ndarray | None:
        node = self._nodes.get(name)
        return self._tensor(node.input[place]) if node is not None and place < len(node.input) else None

    def _tensor(self, name: str) -> np.ndarray | None:
        if name in self._inputs:
            return self._inputs[name]
        if name not in self._known:
            found = (_compute(model, folder, name, self._inputs) for model, folder in self._models)
            self._known[name] = next((array for array in found if array is not None), None)
        return self._known[name]

    def _record(self, name: str) -> dict[tuple[str, ...], list[np.ndarray]]:
        """Return what is read back within a node of the main graph."""
        if name not in self._recorded:
            self._recorded[name] = {}
            model, folder = self._models[-1]
            node = self._nodes.get(name)
            part = part_that_makes(model, next(filter(None, node.output), "")) if node else None
            if part is not None:
                load_data(part, folder)
                feeds = {value.name: self._inputs[value.name] for value in part.graph.input}
                read = {op_type: rule.input for op_type, rule in READ_BACKS.items()}
                self._recorded[name] = record(part, feeds, read)
        return self._recorded[name]


def load_data(model: onnx.ModelProto, folder: Path) -> None:
    """Load the external data of a part of a model."""
    from onnx.external_data_helper import load_external_data_for_model

    load_external_data_for_model(model, str(folder))


def _compute(model: onnx.ModelProto, folder: Path, name: str, inputs: Mapping[str, np.ndarray]) -> np.ndarray | None:
    from ...export.twins import evaluate

    part = part_that_makes(model, name)
    if part is None:
        return None
    load_data(part, folder)
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
