"""Whether a row of a batch is what it is alone."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from ..cases.draw import Case
from ..cases.parity import differences
from ..cases.rows import VALID, Rows
from ..errors import ExportError
from . import messages
from .checked import Checked
from .eager import RefusedError
from .messages import joined
from .subject import Subject


def check_batch(subject: Subject, case: Case, checked: Checked) -> None:
    """Run every row of a case alone, in the module: the file was found to do as the module does.

    Outputs on which rows meet by their axes (a batch by batch matrix, or no batch at all) are left out.

    Raises
    ------
    ExportError
        If a valid row depends on the others.
    """
    layout = subject.layout
    outputs = {name: axes for name, axes in layout.outputs.items() if axes.count(layout.batch) == 1}
    narrow = replace(layout, outputs=outputs)
    try:
        together = subject.eager(case.inputs)
        for row in range(case.sizes[layout.batch]):
            alone = _row(subject, case, row)
            expected = subject.eager(alone.inputs)
            actual = {name: together[name].take([row], axes.index(layout.batch)) for name, axes in outputs.items()}
            if any(actual[name].shape != expected[name].shape for name in outputs):
                checked.not_run.append((f"rows of {case.name} alone", "the shape of an output depends on other rows"))
                return
            for difference in differences(narrow, alone, actual, expected):
                if difference.rows == VALID and difference.error > difference.limit:
                    raise ExportError(
                        joined(
                            f"{subject.name}: the rows of a batch read each other, in PyTorch too: row {row} of "
                            f"{case.name}, run alone, differs by {difference.error:.2g} in {difference.output!r} "
                            f"(allowed: {difference.limit:.2g})",
                            *_suspects(subject.module),
                            messages.MIXED,
                        )
                    )
    except RefusedError as error:
        checked.not_run.append((f"rows of {case.name} alone", str(error)))


def _row(subject: Subject, case: Case, row: int) -> Case:
    batch = subject.layout.batch
    inputs = {
        name: case.inputs[name].take([row], value.axes.index(batch)) if batch in value.axes else case.inputs[name]
        for name, value in subject.layout.inputs.items()
    }
    rows = Rows(
        {label: real[[row]] for label, real in case.rows.real.items()},
        {label: has_key[[row]] for label, has_key in case.rows.has_key.items()},
    )
    return replace(case, sizes={**case.sizes, batch: 1}, inputs=inputs, rows=rows)


def _suspects(module: nn.Module) -> list[str]:
    """Name the attentions of torch.nn that take the sequence first."""
    return [
        f"{name or 'the module'} is nn.{type(part).__name__} without batch_first: it {messages.WRONG_AXIS}"
        for name, part in module.named_modules()
        if isinstance(part, nn.MultiheadAttention) and not part.batch_first
    ]
