"""A case that fails, made as small as it stays failing, and written out with a script that shows it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ...export.cases.draw import Case
from ...export.cases.layout import Label, Layout
from ...export.cases.parity import Tolerance, differences
from ...export.cases.rows import VALID, rows_of
from ...models.masks import Mask
from ...runtime import MaskportError
from ..errors import Refused

Arrays = dict[str, np.ndarray]
Run = Callable[[Mapping[str, np.ndarray]], Arrays]

INPUTS, EXPECTED, SCRIPT = "inputs.npz", "expected.npz", "repro.py"
# Plain ONNX Runtime and numpy alone: whoever reads it needs nothing else.
TEXT = """\
import numpy as np, onnxruntime as ort

# {told}
inputs, expected = dict(np.load("{inputs}")), np.load("{expected}")
session = ort.InferenceSession({model!r}, providers=["CPUExecutionProvider"])
actual = session.run([{output!r}], inputs)[0]
valid = np.broadcast_to(expected["valid"], actual.shape)
print(actual[valid], expected["output"][valid], sep="\\n")
print("largest difference on valid rows:", np.abs(actual.astype(float) - expected["output"])[valid].max())
"""


@dataclass(frozen=True)
class Failing:
    """A case on which valid rows of a candidate and a reference are not the same.

    Attributes
    ----------
    case
        Its inputs.
    layout
        Their axes, and those of the outputs.
    masks
        What the reference says of its masks: which rows have a key.
    candidate, reference
        What runs them.
    limits
        What outputs may differ by, by their names, where it isn't what their element types are allowed.
    """

    case: Case
    layout: Layout
    masks: Sequence[Mask]
    candidate: Run
    reference: Run
    limits: Mapping[str, Tolerance] = field(default_factory=dict)

    @property
    def output(self) -> str | None:
        """The first output that differs on valid rows, or the first of all if the candidate fails; None for none."""
        try:
            expected = self.reference(self.case.inputs)
        except Refused:
            return None
        try:
            actual = self.candidate(self.case.inputs)
        except MaskportError:
            return next(iter(self.layout.outputs))
        for name, axes in self.layout.outputs.items():
            if actual[name].shape != expected[name].shape:
                return name
            alone = replace(self.layout, outputs={name: axes})
            found = differences(alone, self.case, actual, expected, self.limits.get(name))
            if any(difference.rows == VALID and not difference.ok for difference in found):
                return name
        return None

    def shrunk(self) -> Failing:
        """Return the smallest case that still fails: rows, tokens and padding are left out as long as it does."""
        smallest, again = self, True
        while again:
            again = False
            for case in smallest._smaller():
                tried = replace(smallest, case=case)
                if tried.output is not None:
                    smallest, again = tried, True
                    break
        return smallest

    def _smaller(self) -> Iterator[Case]:
        """Yield cases with fewer rows or tokens, the smallest first, then with less padding."""
        case, fixed = self.case, {label for total in self.layout.sums for label in total}
        for label in dict.fromkeys((self.layout.batch, *self.layout.tokens, *self.layout.free)):
            size = case.sizes.get(label, 1)
            if not isinstance(label, str) or label in fixed or size < 2:
                continue
            step = size // 2
            while step:
                for start in range(0, size - step + 1, step):
                    yield self._without(label, start, start + step)
                step //= 2
        for name in self.layout.masks:
            hidden = case.inputs[name] == self.layout.inputs[name].pad
            real = case.inputs[name][~hidden]
            shown = real.flat[0] if real.size else int(self.layout.inputs[name].pad == 0)
            rows = [np.arange(len(hidden))[:, None] == row for row in range(len(hidden))]
            places = [np.arange(hidden.shape[1])[None] == place for place in range(hidden.shape[1])]
            for where in (np.ones((1, 1), bool), *rows, *(row & place for row in rows for place in places)):
                if (where & hidden).any():
                    array = np.where(where & hidden, shown, case.inputs[name]).astype(real.dtype)
                    yield self._told({**case.inputs, name: array}, case.sizes)

    def _without(self, label: str, start: int, stop: int) -> Case:
        """Return the case without some rows or tokens."""
        gone = range(start, stop)
        inputs = {
            name: np.delete(array, gone, self.layout.inputs[name].axes.index(label))
            if label in self.layout.inputs[name].axes
            else array
            for name, array in self.case.inputs.items()
        }
        return self._told(inputs, {**self.case.sizes, label: self.case.sizes[label] - len(gone)})

    def _told(self, inputs: Arrays, sizes: dict[Label, int]) -> Case:
        return replace(self.case, sizes=sizes, inputs=inputs, rows=rows_of(self.layout, sizes, inputs, self.masks))

    def write(self, folder: Path, model: Path) -> Path:
        """Write inputs, the reference's output, which rows are valid, and the script; return the script's path.

        Parameters
        ----------
        folder
            Is made if it isn't there. The script is run in it.
        model
            The candidate.
        """
        output = self.output
        assert output is not None
        folder.mkdir(parents=True, exist_ok=True)
        expected = self.reference(self.case.inputs)[output]
        kinds = self.case.rows.kinds(self.layout, self.layout.outputs[output], expected.shape)
        valid = kinds[VALID] if kinds is not None else np.ones((1,) * expected.ndim, bool)
        np.savez(folder / INPUTS, **self.case.inputs)  # type: ignore[arg-type]
        np.savez(folder / EXPECTED, output=expected, valid=valid)
        sizes = ", ".join(f"{label} {size}" for label, size in self.case.sizes.items() if isinstance(label, str))
        text = TEXT.format(
            told=f"The smallest case found that fails: {sizes}.",
            inputs=INPUTS,
            expected=EXPECTED,
            model=Path(os.path.relpath(model, folder)).as_posix(),
            output=output,
        )
        path = folder / SCRIPT
        path.write_text(text, encoding="utf-8")
        return path
