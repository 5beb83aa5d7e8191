"""What the axes of a model's inputs and outputs are: batch, tokens, and the masks that say which tokens are real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import ExportError
from ..io_metadata import IO_KEY, read_io

Label = int | str | None


class Sum(NamedTuple):
    """One size is the sum of two: the keys of a cache that the queries continue."""

    total: Label
    past: Label
    new: Label


@dataclass(frozen=True)
class Input:
    """An input as the ``maskport.io`` metadata describes it.

    Attributes
    ----------
    role
        ``tokens``, ``mask``, ``positions``, ``packing`` or ``other``.
    axes
        A name for an axis that is free, a size for one that isn't.
    pad
        The value that hides a key, where one does.
    """

    role: str
    axes: tuple[Label, ...]
    pad: int | None


@dataclass(frozen=True)
class Layout:
    """Inputs and outputs by name, with the axes that rows are counted on.

    Attributes
    ----------
    inputs, outputs
        In the order of the file; an output is its axes.
    batch
        Label of the batch axis; None if no input has a batch and a token axis.
    tokens
        Labels of the token axes: one for an encoder, two for an encoder and its decoder.
    sums
        Sizes that depend on each other.
    """

    inputs: dict[str, Input]
    outputs: dict[str, tuple[Label, ...]]
    batch: Label
    tokens: tuple[Label, ...]
    sums: tuple[Sum, ...] = ()

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Layout:
        """Read the layout from a file's metadata.

        Raises
        ------
        ExportError
            If the metadata is missing, damaged or of a version that isn't known.
        """
        io = read_io(metadata)
        if io is None:
            raise ExportError(f"the file has no {IO_KEY} metadata; export it with maskport.export.export")
        return cls.from_io(io)

    @classmethod
    def from_io(cls, io: Mapping[str, Any]) -> Layout:
        """Read the layout from the value of ``maskport.io``."""
        inputs = {
            name: Input(entry["role"], tuple(entry["axes"]), entry.get("pad")) for name, entry in io["inputs"].items()
        }
        outputs = {name: tuple(entry["axes"]) for name, entry in io["outputs"].items()}
        # The masks of padding say it best; what has one entry per token says it where there are none.
        rows = [i for i in inputs.values() if _hides_keys(i)]
        rows += [i for i in inputs.values() if i.role in ("tokens", "positions") and len(i.axes) >= 2]
        batch = rows[0].axes[0] if rows else None
        tokens = dict.fromkeys(i.axes[1] for i in rows if i.axes[0] == batch and i.axes[1] not in (batch, None))
        return cls(inputs, outputs, batch, tuple(tokens))

    @property
    def masks(self) -> dict[str, Label]:
        """The inputs that say which tokens are real, each with its token axis."""
        return {
            name: i.axes[1]
            for name, i in self.inputs.items()
            if _hides_keys(i) and i.axes[0] == self.batch and i.axes[1] in self.tokens
        }

    @property
    def free(self) -> tuple[str, ...]:
        """Names of the axes of inputs that are free."""
        return tuple(dict.fromkeys(a for i in self.inputs.values() for a in i.axes if isinstance(a, str)))

    def positions(self, axes: tuple[Label, ...]) -> dict[int, Label]:
        """Where the batch and the token axes stand in `axes`. A fixed size is one only where it is expected."""
        return {
            position: label
            for position, label in enumerate(axes)
            if label is not None
            and (label == self.batch or label in self.tokens)
            and (isinstance(label, str) or position == (0 if label == self.batch else 1))
        }


def _hides_keys(value: Input) -> bool:
    return value.pad is not None and len(value.axes) == 2 and value.axes[0] != value.axes[1]
