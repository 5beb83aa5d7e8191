"""Inputs and outputs of a file that anyone made: by its metadata, else by its masks, its graph and a trial run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from ...models.masks import Mask
from ..cases.draw import Case, Size, draw_case, sizes_of
from ..cases.layout import Input, Label, Layout, Sum
from ..certificate.drawn_from import with_few_values
from ..check.backend import BackendError
from ..errors import ProofFailed
from ..io_metadata import IO_KEY, KNOWN, axes_of, io_of
from .examples import examples_of
from .ids import bound_of
from .side import Side

# Two sets of sizes, no two alike in one set: an axis of an output that follows an axis of the inputs in both is that.
TRIALS = ((2, 5, 7, 11, 13, 17, 19, 23), (3, 7, 4, 9, 10, 14, 15, 22))
# Some files fail at any batch above 1; of those a batch is what stands first.
LONE_TRIALS = tuple((1, *lengths) for _, *lengths in TRIALS)
# Lengths that a model may insist on a multiple of.
MULTIPLES = (1, 8, 16, 64)


@dataclass(frozen=True)
class Interface:
    """What the cases are drawn from.

    Attributes
    ----------
    layout
        Roles and axes; those of the outputs, and of `hidden`, are as they were found by running the source.
    examples
        The values that inputs take.
    hidden
        Tensors that masks name and that the source computes, with their axes.
    multiple
        What lengths must be a multiple of.
    lone
        Whether the source fails at any batch above 1.
    """

    layout: Layout
    examples: dict[str, np.ndarray]
    hidden: dict[str, tuple[Label, ...]]
    multiple: int = 1
    lone: bool = False

    def draw(self, sizes: Mapping[Label, int], pattern: str, seed: int) -> Case:
        """Draw a case; its rows are told by :func:`compare.with_rows` when the source has run."""
        return draw_case(self.layout, self.examples, (), sizes, pattern, seed)

    def sizes(self, size: Size, given: Mapping[Label, int] | None = None) -> dict[Label, int]:
        """Return the size of every axis, lengths rounded up to what the model takes."""
        m = self.multiple
        rounded = Size(size.batch, -(-size.length // m) * m, -(-size.other // m) * m)
        return sizes_of(self.layout, rounded, given)


def hidden_tensors(graph: ir.Graph, masks: Sequence[Mask]) -> list[str]:
    """Return the tensors of masks that are no inputs and that a node of the graph computes."""
    inputs = {value.name for value in graph.inputs}
    computed = {value.name for node in graph for value in node.outputs}
    names = dict.fromkeys(name for mask in masks for name in mask.tensors)
    return [name for name in names if name not in inputs and name in computed]


def interface_of(model: ir.Model, source: Side, masks: Sequence[Mask], hidden: Sequence[str], seed: int) -> Interface:
    """Return the interface of a source.

    Raises
    ------
    ProofFailed
        If the source can't be run at any sizes that were tried.
    ExportError
        If what the file says of its inputs is damaged, or of another version.
    """
    # An id may be looked up by the graph alone: what is inside a function is not followed.
    bounds = {str(value.name): bound for value in model.graph.inputs if (bound := bound_of(value)) is not None}
    declared = _layout(model, masks, bounds)
    examples = with_few_values(examples_of(model.graph, declared, masks, bounds, seed), declared)
    reasons: list[str] = []
    doubtful = None
    for trials, multiple, layout in itertools.product((TRIALS, LONE_TRIALS), MULTIPLES, _candidates(declared)):
        found = _try(source, layout, examples, hidden, trials, multiple, seed, reasons)
        if found is not None:
            if _is_plain(found.layout):
                return found
            doubtful = doubtful or found
        if not layout.free:
            break
    if doubtful is not None:
        return doubtful
    raise ProofFailed(f"the source itself can't be run on inputs that were drawn for it: {reasons[0]}")


def _layout(model: ir.Model, masks: Sequence[Mask], bounds: Mapping[str, int]) -> Layout:
    """Return the layout that the metadata tells, else that names, masks and lookups do."""
    graph = model.graph
    if IO_KEY in model.metadata_props:
        layout = Layout.of(model.metadata_props)
        ranks = {name: len(value.axes) for name, value in layout.inputs.items()}
        if ranks == {str(value.name): len(value.shape or ()) for value in graph.inputs}:
            return layout
        # Another tool has changed the file since: the graph says it again.
    axes: dict[str, list[int | str | None]] = {}
    for value in graph.inputs:
        if value.shape is None:
            raise ProofFailed(f"the input {value.name!r} has no declared rank, so nothing can be drawn for it")
        axes[str(value.name)] = [
            label if label is not None else f"axis {place}" for place, label in enumerate(axes_of(value))
        ]
    roles = {
        name: "tokens" for name in bounds if name not in KNOWN and len(axes[name]) >= 2 and not _is_named(name, masks)
    }
    outputs = {str(value.name): axes_of(value) for value in graph.outputs}
    return Layout.from_io(io_of(axes, outputs, masks, roles))


def _is_named(name: str, masks: Sequence[Mask]) -> bool:
    return any(name in mask.tensors for mask in masks)


def _candidates(layout: Layout) -> Iterator[Layout]:
    """Yield the layout; with its axes of the same place as one; with each sum of lengths that it may insist on."""
    yield layout
    merged = _merged(layout)
    if merged != layout:
        yield merged
    for each in dict.fromkeys((layout.batch, merged.batch)):
        base = layout if each == layout.batch else merged
        lengths = [axis for axis in base.free if axis != base.batch]
        for total, past, new in itertools.permutations(lengths, 3):
            if new in base.tokens:
                yield replace(base, sums=(Sum(total, past, new),))


def _merged(layout: Layout) -> Layout:
    """Return the layout whose free first axes are the batch, and whose free second axes are one length."""
    names: dict[Label, Label] = {}
    for value in layout.inputs.values():
        if len(value.axes) >= 2:
            names |= {
                axis: to for axis, to in zip(value.axes[:2], ("batch", "length"), strict=True) if isinstance(axis, str)
            }
    inputs = {
        name: Input(value.role, tuple(names.get(axis, axis) for axis in value.axes), value.pad)
        for name, value in layout.inputs.items()
    }
    tokens = tuple(dict.fromkeys(names.get(label, label) for label in layout.tokens))
    return Layout(inputs, layout.outputs, names.get(layout.batch, layout.batch), tokens)


def _is_plain(layout: Layout) -> bool:
    """Whether it is clear which length is the cache's: outputs are as long as the queries, or as all keys."""
    lengths = {label for axes in layout.outputs.values() for label in axes}
    return all(new in lengths and past not in lengths for _, past, new in layout.sums)


def _try(
    source: Side,
    layout: Layout,
    examples: dict[str, np.ndarray],
    hidden: Sequence[str],
    trials: Sequence[Sequence[int]],
    multiple: int,
    seed: int,
    reasons: list[str],
) -> Interface | None:
    runs = []
    for numbers in trials:
        labels = [layout.batch, *layout.tokens, *layout.free]
        free = dict.fromkeys(label for label in labels if isinstance(label, str))
        given: dict[Label, int] = {
            label: n * (1 if label == layout.batch else multiple)
            for label, n in zip(free, itertools.cycle(numbers), strict=False)
        }
        sizes = sizes_of(layout, Size(*numbers[:3]), given)
        try:
            runs.append((sizes, source.run(draw_case(layout, examples, (), sizes, "ones", seed).inputs)))
        except BackendError as error:
            reasons.append(str(error))
            return None
        if not free:
            runs.append(runs[-1])
            break
    names = [*layout.outputs, *hidden]
    axes = {name: _axes(name, runs) for name in names}
    outputs = {name: axes[name] for name in layout.outputs}
    named = {name: axes[name] for name in hidden}
    return Interface(replace(layout, outputs=outputs), examples, named, multiple, trials is LONE_TRIALS)


def _axes(name: str, runs: Sequence[tuple[Mapping[Label, int], Mapping[str, np.ndarray]]]) -> tuple[Label, ...]:
    """Return the label of each axis of what was computed: a size where it is fixed, None where it follows no input."""
    shapes = [outputs[name].shape for _, outputs in runs]
    if len({len(shape) for shape in shapes}) > 1:
        return (None,) * len(shapes[0])
    found: list[Label] = []
    for place in range(len(shapes[0])):
        lengths = [shape[place] for shape in shapes]
        follows = [
            label
            for label in runs[0][0]
            if isinstance(label, str)
            and all(sizes[label] == n for (sizes, _), n in zip(runs, lengths, strict=True))
            # An axis of one is the batch once.
            and not (label in found and set(lengths) == {1})
        ]
        found.append(follows[0] if follows else lengths[0] if len(set(lengths)) == 1 else None)
    return tuple(found)
