"""What the cases of a check are drawn from: roles, axes, and the values that inputs take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ...models.masks import Mask
from ..cases.draw import is_float
from ..cases.layout import Input, Label, Layout, Sum

# Enough values of an input that rows differ.
MOST_VALUES = 64
TYPES = (
    "bool",
    "float16",
    "float32",
    "float64",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True, eq=False)
class DrawnFrom:
    """What is needed to draw the cases of a check again.

    Attributes
    ----------
    layout
        Roles and axes.
    examples
        As :func:`with_few_values` returns them.
    masks
        Those that tell which rows have a key.
    hidden
        Tensors that the masks name and that the reference computes, with their axes.
    lone
        Whether the reference fails at any batch above 1, and was run row by row.
    """

    layout: Layout
    examples: dict[str, np.ndarray]
    masks: tuple[Mask, ...]
    hidden: dict[str, tuple[Label, ...]]
    lone: bool = False

    def __eq__(self, other: object) -> bool:
        """Tell by what is written: arrays don't compare to one truth value."""
        return isinstance(other, DrawnFrom) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> dict[str, Any]:
        """Return it with JSON's types."""
        layout = self.layout
        found: dict[str, Any] = {
            "inputs": {
                name: {
                    "role": value.role,
                    "axes": list(value.axes),
                    "pad": value.pad,
                    "type": self.examples[name].dtype.name,
                    "shape": list(self.examples[name].shape),
                    "values": [_plain(v) for v in _values(self.examples[name], _kind_of(layout, name, self.examples))],
                }
                for name, value in layout.inputs.items()
            },
            "outputs": {name: list(axes) for name, axes in layout.outputs.items()},
            "batch": layout.batch,
            "tokens": list(layout.tokens),
            "masks": [str(mask) for mask in self.masks],
        }
        for name, value in (("sums", layout.sums), ("hidden", self.hidden), ("lone", self.lone)):
            if value:
                found[name] = value
        return found

    @classmethod
    def from_json(cls, entry: Mapping[str, Any], most: int) -> DrawnFrom:
        """Read it back.

        Raises
        ------
        ValueError, TypeError, KeyError, AttributeError
            If it is none, or an example would have more than `most` numbers.
        """
        inputs, examples = {}, {}
        for name, value in entry["inputs"].items():
            pad = value["pad"]
            if not isinstance(value["role"], str) or not isinstance(pad, int | None):
                raise TypeError(f"role {value['role']!r} or pad {pad!r} of {name!r}")
            inputs[name] = Input(value["role"], _labels(value["axes"]), pad)
            examples[name] = _example(value, most)
            if examples[name].ndim != len(inputs[name].axes):
                raise ValueError(f"the shape of {name!r} doesn't fit its axes")
        outputs = {name: _labels(axes) for name, axes in entry["outputs"].items()}
        batch, tokens = _labels([entry["batch"]])[0], _labels(entry["tokens"])
        sums = tuple(Sum(*_labels(labels)) for labels in entry.get("sums", ()))
        layout = Layout(inputs, outputs, batch, tokens, sums)
        masks = tuple(Mask.parse(text) for text in entry["masks"])
        hidden = {name: _labels(axes) for name, axes in entry.get("hidden", {}).items()}
        return cls(layout, examples, masks, hidden, bool(entry.get("lone", False)))


def with_few_values(examples: Mapping[str, np.ndarray], layout: Layout) -> dict[str, np.ndarray]:
    """Return examples of which a short list of numbers tells all that cases are drawn from.

    What has few numbers keeps them. Of more, 64 different ones are kept, the least and the largest among them. Numbers
    with a fraction are drawn from the normal distribution, whatever the example's are; of a mask two numbers matter.
    """
    return {
        name: _repeated(_values(example, _kind_of(layout, name, examples)), example.shape, example.dtype)
        for name, example in examples.items()
    }


def _kind_of(layout: Layout, name: str, examples: Mapping[str, np.ndarray]) -> str:
    if layout.inputs[name].role == "mask":
        return "mask"
    return "none" if is_float(examples[name]) and name not in layout.masks else "some"


def _values(example: np.ndarray, kind: str) -> Sequence[Any]:
    flat = example.reshape(-1)
    if kind == "none" or not flat.size:
        return []
    if kind == "mask":
        return [flat[0], *flat[flat != flat[0]][:1]]
    if flat.size <= MOST_VALUES:
        return list(flat)
    distinct = np.unique(flat)
    if distinct.size <= MOST_VALUES:
        return list(distinct)
    return list(distinct[np.linspace(0, distinct.size - 1, MOST_VALUES).astype(int)])


def _repeated(values: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if not len(values):
        return np.zeros(shape, dtype)
    return np.resize(np.array(values, dtype), shape)


def _plain(value: Any) -> int | float | str:
    """Return a number of JSON; text for an infinite one, which JSON doesn't have."""
    number = float(value) if is_float(np.asarray(value)) else int(value)
    return number if np.isfinite(number) else str(number)


def _example(value: Mapping[str, Any], most: int) -> np.ndarray:
    shape = value["shape"]
    if not all(isinstance(size, int) and 0 <= size <= most for size in shape):
        raise ValueError(f"the shape {shape!r} is none, or too large")
    if np.prod([float(size) for size in shape]) > most or len(value["values"]) > MOST_VALUES:
        raise ValueError("an example is too large")
    if value["type"] not in (*TYPES, BFLOAT16.name):
        raise ValueError(f"the type {value['type']!r} is none that is drawn")
    dtype = BFLOAT16 if value["type"] == BFLOAT16.name else np.dtype(value["type"])
    numbers = [float(number) if isinstance(number, str) else number for number in value["values"]]
    return _repeated(numbers, tuple(shape), dtype)


def _labels(axes: Sequence[Any]) -> tuple[Label, ...]:
    if isinstance(axes, str) or not all(isinstance(axis, int | str | None) for axis in axes):
        raise TypeError(f"the axes {axes!r} are none")
    return tuple(axes)
