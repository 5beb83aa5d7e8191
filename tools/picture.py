"""Pictures of masks and of what two masks differ in: a row per query, a column per key."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from ..models.masks import Mask, Witness
from .mask_sample import CELLS, Sample, fill, sample
from .shown import shown

__all__ = ["MARKS", "Picture", "difference", "legend", "picture", "text"]

# What a cell says: its mark in a text, the style of that, its class in a page, and its meaning.
NOT, ATTENDS, DEPENDS, ADDED, REMOVED = range(5)
MARKS = (
    ("·", "dim", "not", "does not attend"),
    ("■", "cyan", "attends", "attends"),
    ("?", "yellow", "depends", "as the tensor says"),
    ("+", "bold green", "added", "attends in the new file alone"),
    ("-", "bold red", "removed", "attends in the old file alone"),
)
# Tensors that decide each pair alone are tried with all values; this many at most in all combinations.
MOST_FREE = 6


@dataclass(frozen=True)
class Picture:
    """Cells [panel, query, key], each a place in `MARKS`.

    Attributes
    ----------
    titles : tuple of str
        One per panel; empty where there is one panel.
    q, k : numpy.ndarray
        The positions of the rows and columns.
    caption : str
        The lengths and tensors, in words.
    """

    cells: np.ndarray
    titles: tuple[str, ...]
    q: np.ndarray
    k: np.ndarray
    caption: str

    @property
    def consecutive(self) -> bool:
        """Whether neighbouring columns are neighbouring keys."""
        return bool((np.diff(self.k) == 1).all())


def picture(mask: Mask, *, cross: bool = False) -> Picture:
    """Draw a mask at sample lengths on sample tensors (see `mask_sample.sample`)."""
    at = sample(mask, cross=cross)
    drawn = []
    for values in itertools.product((False, True), repeat=min(len(at.free), MOST_FREE)):
        # Beyond the limit the last value stands for all that are left.
        chosen = {name: np.array(values[min(place, MOST_FREE - 1)]) for place, name in enumerate(at.free)}
        (tensors,) = fill(at, [mask], chosen)
        drawn.append(mask.at(at.q, at.k, at.q_len, at.k_len, 0, **tensors))
    always, ever = np.all(drawn, axis=0), np.any(drawn, axis=0)
    return _picture(np.where(always, ATTENDS, np.where(ever, DEPENDS, NOT)), at.q, at.k, at.caption)


def difference(old: Mask, new: Mask, witness: Witness, *, cross: bool = False) -> Picture:
    """Draw what two masks differ in: at sample lengths if that shows it, else around the witness."""
    at = sample(old, new, cross=cross, reach=witness.sizes.k_len - 1)
    if at.step == 1:
        drawn = _differ(old, new, at)
        if _shows(drawn):
            return drawn
    # Some rows beyond the witness show how it goes on, if the lengths are not what makes the difference.
    return next(drawn for more in (BEYOND, 0) if _shows(drawn := _near(old, new, witness, more)) or not more)


BEYOND = 3


def _near(old: Mask, new: Mask, witness: Witness, more: int) -> Picture:
    q_len, k_len, past = witness.sizes
    specs = old.tensors | new.tensors
    tensors = {
        name: np.pad(tensor, [(0, more * (axis in "qk")) for axis in specs[name].dims], mode="edge")
        for name, tensor in witness.tensors.items()
    }
    q, k = _around(witness.q, q_len + more), _around(witness.k, k_len + more)
    before, after = (
        mask.at(q, k, q_len + more, k_len + more, past, **{name: tensors[name] for name in mask.tensors})
        for mask in (old, new)
    )
    return _picture(_cells(before, after), q, k, ("around the first difference",))


def _shows(drawn: Picture) -> bool:
    return bool(np.isin(drawn.cells, (ADDED, REMOVED)).any())


def _differ(old: Mask, new: Mask, at: Sample) -> Picture:
    draw = np.random.default_rng(5)
    values = {name: draw.random((at.q_len, at.k_len)) < 0.5 for name in at.free}
    masks = (old, new)
    before, after = (
        mask.at(at.q, at.k, at.q_len, at.k_len, 0, **tensors)
        for mask, tensors in zip(masks, fill(at, masks, values), strict=True)
    )
    drawn = tuple(f"{shown(name)} is drawn at random" for name in at.free)
    return _picture(_cells(before, after), at.q, at.k, (*at.caption, *drawn))


def _cells(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    return np.where(before & after, ATTENDS, np.where(after, ADDED, np.where(before, REMOVED, NOT)))


def _around(position: int, length: int) -> np.ndarray:
    first = max(0, min(position - CELLS // 2, length - CELLS))
    return np.arange(first, min(length, first + CELLS))


def _picture(cells: np.ndarray, q: np.ndarray, k: np.ndarray, caption: tuple[str, ...]) -> Picture:
    batch, heads = cells.shape[:2]
    titles = [f"b={b}" if batch > 1 else "" for b in range(batch) for _ in range(heads)]
    return Picture(cells.reshape(-1, *cells.shape[2:]), tuple(titles), q, k, "; ".join(caption))


def text(drawn: Picture, width: int = 76) -> Text:
    """Return a picture as text: a line per query, panels side by side."""
    panels = [_panel(drawn, panel) for panel in range(len(drawn.cells))]
    across = max(1, (width + 3) // (panels[0][0].cell_len + 3))
    lines = []
    for first in range(0, len(panels), across):
        rows = zip(*panels[first : first + across], strict=True)
        lines += [Text("   ").join(row) for row in rows]
    return Text("\n").join(lines)


def _panel(drawn: Picture, panel: int) -> list[Text]:
    margin = len(str(drawn.q[-1]))
    columns = len(drawn.k)
    width = margin + 2 * columns
    lines = [Text(drawn.titles[panel].ljust(width))] if drawn.titles[panel] else []
    if drawn.consecutive:
        lines.append(Text(" " * (margin + 1) + " ".join(str(k % 10) for k in drawn.k), "dim"))
    for q, cells in zip(drawn.q, drawn.cells[panel], strict=True):
        marks = Text(" ").join(Text(*MARKS[cell][:2]) for cell in cells)
        lines.append(Text(f"{q:>{margin}} ", "dim") + marks)
    return lines


def legend(*drawn: Picture) -> Text:
    """Return what the marks of some pictures mean."""
    used = [MARKS[cell] for cell in sorted({int(cell) for one in drawn for cell in np.unique(one.cells)})]
    return Text("  ").join(Text(f"{mark} ", style) + Text(meaning, "dim") for mark, style, _, meaning in used)
