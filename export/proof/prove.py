"""A source and what was made of it, run side by side: what is run, in which order, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from ...models.masks import Mask
from ..errors import ProofFailed
from ..packing.host_inputs import packing_inputs
from .by_row import by_row
from .candidate import Candidate
from .compare import PADDING_ROWS
from .granted import Assumes
from .interface import hidden_tensors, interface_of
from .plan import mains, plan, weights_of
from .record import Proof
from .runs import Runs
from .side import CPU, TWIN, side_of

LONE = "the source fails at any batch above 1: if the result does not, it was compared with rows that were run alone"
EMPTY_BATCH = "an operator may end the process on an empty batch"


def prove(
    source: ir.Model,
    result: ir.Model,
    *,
    padding_rows: str = "any",
    masks: Sequence[Mask] = (),
    assumes: Assumes = (),
    dtype: str | None = None,
    unconverted: ir.Model | None = None,
    seed: int = 0,
) -> Proof:
    """Run a source and what was made of it on the same inputs, and compare their rows.

    Parameters
    ----------
    source, result : ir.Model
        Both are left as they are. Roles and axes of the inputs come from the source's ``maskport.io``, else from
        the masks, the graph and a trial run.
    padding_rows : str
        What the result may do to rows that are no real token: "any" (finite), "zero" or "keep".
    masks : sequence of Mask
        Those of the source's attention: they say which rows have no key. Tensors that they name are inputs of the
        source or computed by a node of its graph.
    assumes : sequence of dict
        What the result takes for granted, as in ``maskport.assumes``; inputs that break it are not tried. Facts that
        the masks themselves take for granted belong here, too.
    dtype : str or None
        What the result computes in, if that is coarser than its outputs.
    unconverted : ir.Model or None
        The result before it was converted to `dtype`. It must agree within the tolerance of its own type, which shows
        what rounding would hide; the result then has the wider tolerance of many roundings.
    seed : int
        Of everything that is drawn.

    Returns
    -------
    Proof

    Raises
    ------
    ProofFailed
        If the result differs, fails where the source doesn't, or can't be run: the message names the output, the
        case, the rows, the difference and what it may be.
    """
    if padding_rows not in PADDING_ROWS:
        raise ValueError(f"padding_rows is {padding_rows!r}; give one of {', '.join(PADDING_ROWS)}")
    _check_names(source, result)
    hidden = hidden_tensors(source.graph, masks)
    reference = side_of(source, "the source", as_written=True, outputs=hidden)
    candidates = [Candidate.of(result, "", dtype, converted=unconverted is not None)]
    if unconverted is not None:
        candidates.insert(0, Candidate.of(unconverted, f"before it was converted to {dtype}, ", None))
    interface = interface_of(source, reference, masks, hidden, seed)
    if interface.lone:
        reference = by_row(reference, interface)
    sides = [reference, *(candidate.side for candidate in candidates)]
    checked = TWIN if any(side.checked == TWIN for side in sides) else CPU
    runs = Runs(interface, reference, candidates, masks, assumes, padding_rows, seed)
    weights = weights_of(source.graph)
    for main in mains(interface, weights, checked):
        if runs.takes(runs.draw(interface.sizes(main), "ones")):
            break
    planned = plan(interface, masks, weights, checked, main)
    runs.record.not_run += [*planned.left_out, ("batch=0", EMPTY_BATCH)]
    if interface.lone:
        runs.record.notes.append(LONE)
    for sizes, pattern in planned.cases:
        runs.compare(runs.draw(sizes, pattern), pattern)
    holes = runs.draw(interface.sizes(main), "holes")
    runs.compare_other_numbers(holes)
    runs.note_effects(holes)
    return Proof(checked, padding_rows, runs.finish())


def _check_names(source: ir.Model, result: ir.Model) -> None:
    added = packing_inputs(result.metadata_props)
    for what in ("inputs", "outputs"):
        theirs, ours = ([value.name for value in getattr(model.graph, what)] for model in (source, result))
        ours = [name for name in ours if name not in added]
        if theirs != ours:
            raise ProofFailed(f"the result has the {what} {', '.join(map(str, ours))}, the source {theirs}")
