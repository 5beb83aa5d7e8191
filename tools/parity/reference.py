"""What a candidate is compared with: a file or an eager module, with all that a validation reads of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...export.cases.draw import Size, draw_case, is_float, sizes_of
from ...export.cases.layout import Layout
from ...models.masks import Mask
from ...runtime import MaskportError, ModelError, Session
from ..errors import Refused, ToolError
from ..inputs import draw_inputs
from ..model_layout import layout_of
from .comparison import Precise
from .plan import MAX_LENGTH, Beyond, Lengths

if TYPE_CHECKING:
    from torch import nn

Arrays = dict[str, np.ndarray]
Run = Callable[[Mapping[str, np.ndarray]], Arrays]


@dataclass(frozen=True)
class Reference:
    """A file or a module, ready to be run.

    Attributes
    ----------
    run
        Raises `Refused` for inputs that it can't take.
    layout
        Axes of inputs and outputs.
    examples
        Inputs whose values others are drawn from.
    outputs
        Their names.
    masks
        The masks that a module holds, or that are read from a file.
    lengths
        That it sets itself.
    precise
        By an element type, what runs it in that type and in float64.
    """

    run: Run
    layout: Layout
    examples: Arrays
    outputs: Sequence[str]
    masks: Sequence[Mask] = ()
    lengths: Lengths = field(default_factory=Lengths)
    precise: Callable[[str], Precise | None] = lambda dtype: None


def of_file(session: Session, model: str | os.PathLike[str] | bytes | None, example_inputs: Any) -> Reference:
    """Return a file as the reference; of a session alone, no masks are known."""
    masks = [] if model is None else _read_masks(model)
    windows = [(max(leaf.window), f"the mask `{mask}`") for mask in masks for leaf in mask.leaves]
    examples = _examples(example_inputs, session)

    def run(inputs: Mapping[str, np.ndarray]) -> Arrays:
        try:
            return run_file(session, inputs)
        except MaskportError as error:
            raise Refused(str(error)) from error

    def precise(dtype: str) -> Precise | None:
        from .in_float64 import in_float64

        outputs = [value.element.numpy for value in session.outputs if value.element is not None]
        own = any(element is not None and np.dtype(element).name == dtype for element in outputs)
        double = in_float64(model) if model is not None and own else None
        return None if double is None else Precise(None, double)

    lengths = Lengths(None, _beyond(windows, None))
    return Reference(run, layout_of(session), examples, session.output_names, masks, lengths, precise)


def of_module(module: nn.Module, example_inputs: Any, candidate: Session) -> Reference:
    """Return a module as the reference of a file, whose layout and names it takes."""
    from .eager_reference import EagerReference

    eager = EagerReference(module, example_inputs, candidate.output_names)
    layout = layout_of(candidate)

    def precise(dtype: str) -> Precise | None:
        double = eager.in_precision("float64")
        own = None if dtype == eager.dtype else eager.in_precision(dtype)
        return None if double is None or (own is None and dtype != eager.dtype) else Precise(own, double)

    reference = Reference(eager.run, layout, eager.examples, candidate.output_names, eager.masks, Lengths(), precise)
    lengths = Lengths(_traced(reference), _beyond(eager.windows, _largest(reference, eager.largest)))
    return replace(reference, lengths=lengths)


def run_file(session: Session, inputs: Mapping[str, np.ndarray]) -> Arrays:
    """Run a session on arrays by name; numbers with a fraction are brought to the type that it takes."""
    given = {}
    for declared in session.inputs:
        array, element = inputs[declared.name], declared.element
        if is_float(array) and element is not None and element.numpy is not None and element.numpy.kind == "f":
            array = array.astype(element.numpy)
        given[declared.name] = array
    found = session.run(given)
    if other := [name for name, array in found.items() if not isinstance(array, np.ndarray)]:
        raise ModelError(f"the output {other[0]!r} is no tensor, so it can't be compared")
    return found


def _examples(example_inputs: Any, session: Session) -> Arrays:
    """Return the examples of a file that is the reference, in the order of its inputs."""
    if example_inputs is None:
        return draw_inputs(session, {})
    if not isinstance(example_inputs, Mapping):
        raise ToolError("example_inputs of a file must be a dict of arrays by input name")
    # The session knows best what its inputs are; whether it can run at this size is found out later.
    with contextlib.suppress(ModelError):
        session.run(example_inputs)
    return {name: np.asarray(example_inputs[name]) for name in session.input_names}


def _read_masks(model: str | os.PathLike[str] | bytes) -> list[Mask]:
    """Return the masks that are read from a file, each once."""
    from ...export.errors import InspectError
    from ...export.inspector import inspect

    try:
        sites = inspect(os.fspath(model), check=False).sites
    except InspectError:
        # Whether it is a model at all is for the session to say.
        return []
    return list(dict.fromkeys(site.mask for site in sites))


def _traced(reference: Reference) -> int | None:
    """Return the length of the example."""
    for name, value in reference.layout.inputs.items():
        for label, size in zip(value.axes, reference.examples[name].shape, strict=False):
            if reference.layout.tokens and label == reference.layout.tokens[0]:
                return int(size)
    return None


def _beyond(windows: Sequence[tuple[int, str]], largest: int | None) -> list[Beyond]:
    """Return lengths past the windows, and the largest that is allowed."""
    found = {
        reach: Beyond(
            2 * reach + 1, f"window/{reach}", f"no row was longer than {why}, so a lost window would not be seen"
        )
        for reach, why in windows
        if reach > 0
    }
    allowed = [] if largest is None else [Beyond(largest, f"length/{largest}", f"rows of {largest} tokens are allowed")]
    return [*found.values(), *allowed]


def _largest(reference: Reference, allowed: int | None) -> int | None:
    """Return the longest row that is allowed: some tables hold an entry for padding, too, or two."""
    if allowed is None or not reference.layout.tokens or set(reference.layout.inputs) != set(reference.examples):
        return None
    for length in (allowed, allowed - 1, allowed - 2):
        if length > MAX_LENGTH:
            return length
        sizes = sizes_of(reference.layout, Size(1, length, 1))
        case = draw_case(reference.layout, reference.examples, reference.masks, sizes)
        try:
            reference.run(case.inputs)
        except Refused:
            continue
        return length
    return None
