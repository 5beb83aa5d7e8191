"""The smallest case that fails, as a section of a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...export.cases.rows import VALID
from ...runtime import MaskportError
from ..inspect_page import LONGEST_TEXT, code, facts, text
from ..parity.repro import Failing
from ..tables import error_text

CELL = 18
# More tokens are not drawn, and more numbers not printed.
MOST_DRAWN, MOST_NUMBERS = 48, 24


@dataclass(frozen=True)
class Largest:
    """The number of an output that is furthest from the reference's, on valid rows; `place` is where it is."""

    output: str
    place: tuple[int, ...]
    candidate: float
    reference: float


def largest(failing: Failing) -> Largest | str:
    """Return the number that differs most, or in words why there is none."""
    output = failing.output
    if output is None:
        return "the case does not fail again: one of the sides gives other numbers from run to run"
    try:
        actual = failing.candidate(failing.case.inputs)[output]
    except MaskportError as error:
        return f"the candidate fails: {error}"
    expected = failing.reference(failing.case.inputs)[output]
    if actual.shape != expected.shape:
        return f"the shape of {output!r} is {list(actual.shape)}, the reference's is {list(expected.shape)}"
    kinds = failing.case.rows.kinds(failing.layout, failing.layout.outputs[output], expected.shape)
    valid = np.broadcast_to(kinds[VALID] if kinds is not None else np.True_, expected.shape)
    one, two = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.nan_to_num(np.where(one == two, 0.0, np.abs(one - two)), nan=np.inf, posinf=np.inf)
    apart[np.isnan(one) & np.isnan(two)] = 0.0
    place = np.unravel_index(int(np.where(valid, apart, -1.0).argmax()), apart.shape)
    return Largest(output, tuple(int(i) for i in place), float(one[place]), float(two[place]))


def failure_section(failing: Failing, where: str | None, script: Path | None) -> str:
    """Return the section: sizes, masks as a picture, inputs, the largest difference, where it begins, its script."""
    case, layout = failing.case, failing.layout
    sizes = ", ".join(f"{label} {size}" for label, size in case.sizes.items() if isinstance(label, str))
    rows = [("sizes", text(sizes or "as declared"))]
    rows += [("inputs", "<br>".join(_input(name, array) for name, array in case.inputs.items()))]
    found = largest(failing)
    if isinstance(found, str):
        rows.append(("result", text(found, LONGEST_TEXT)))
    else:
        at = "[" + ", ".join(map(str, found.place)) + "]"
        rows.append(
            (
                "largest difference",
                f"{error_text(abs(found.candidate - found.reference))} at {code(f'{found.output}{at}')}: "
                f"{found.candidate:.6g} in the candidate, {found.reference:.6g} in the reference",
            )
        )
    rows.append(("where", text(where, LONGEST_TEXT) if where else ""))
    script_told = code(script.as_posix(), LONGEST_TEXT) if script else "give <code>--repro FOLDER</code> to have one"
    rows.append(("script", script_told))
    pictures = "".join(_mask(name, case.inputs[name], layout.inputs[name].pad) for name in layout.masks)
    drawn = f'<div class="panels">{pictures}</div>\n' if pictures else ""
    return (
        "<section>\n<h2>The smallest case that fails</h2>\n<p>Rows, tokens and padding were left out as long as valid "
        f"rows still differ.</p>\n{facts(rows)}{drawn}</section>\n"
    )


def _input(name: str, array: np.ndarray) -> str:
    shape = f"{array.dtype} {list(array.shape)}"
    values = f" = {array.tolist()}" if array.dtype.kind in "iub" and array.size <= MOST_NUMBERS else ""
    return f"{code(name)} <span>{text(shape)}</span>{text(values, LONGEST_TEXT)}"


def _mask(name: str, array: np.ndarray, pad: Any) -> str:
    """Return a padding mask as a row of squares for each row of the batch."""
    real = (array != pad)[:, :MOST_DRAWN]
    batch, length = real.shape
    squares = ""
    for kind, where in (("attends", real), ("not", ~real)):
        at = "".join(
            f"M{22 + CELL * column} {14 + CELL * row}h{CELL - 2}v{CELL - 2}h-{CELL - 2}z"
            for row, column in np.argwhere(where)
        )
        squares += f'<path class="{kind}" d="{at}"/>' if at else ""
    labels = "".join(
        f'<text class="pad" x="{22 + CELL * column + 8}" y="{14 + CELL * row + 12}" text-anchor="middle">p</text>'
        for row, column in np.argwhere(~real)
    )
    labels += "".join(f'<text x="16" y="{14 + CELL * row + 12}" text-anchor="end">{row}</text>' for row in range(batch))
    labels += "".join(f'<text x="{22 + CELL * k + 8}" y="9" text-anchor="middle">{k}</text>' for k in range(length))
    width, height = 22 + CELL * length, 14 + CELL * batch
    told = f"{name}: {int(real.sum())} of {real.size} tokens are real"
    return (
        f'<div class="panel"><span class="panel-title">{text(told)}</span><svg role="img" aria-label="{text(told)}" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">{squares}{labels}</svg></div>'
    )
