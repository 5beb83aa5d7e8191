"""What is known of where queries and keys are, and what a user grants: facts that make masks simpler.

A fact is a mask that is true at every pair of a query row that counts and a key. So a conjunct of a mask goes if the
others and the facts imply it: the algebra decides, no pattern does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from ...models.masks import Causal, KeyPadding, Mask, QueryPadding, Window
from ..io_metadata import read_io
from .asked import Assumed, Lengths

__all__ = ["GRANTS", "Fact", "Grants", "key_paddings", "length_facts"]


@dataclass(frozen=True)
class Fact:
    """A mask that is true at every pair that counts, why, and what it takes for granted, if anything."""

    holds: Mask
    why: str
    assumed: Assumed | None = None


def _right(name: str, pad: int) -> Mask:
    return ~QueryPadding(name, pad) | ~Causal() | KeyPadding(name, pad)


def _left(name: str, pad: int) -> Mask:
    return ~QueryPadding(name, pad) | ~Window(0, -1) | KeyPadding(name, pad)


# What `--assume` takes beside length_le:N: the check that Session makes, and what it says of a real query's keys.
GRANTS: dict[str, tuple[str, Callable[[str, int], Mask]]] = {
    "right-padding": ("right_padded", _right),
    "left-padding": ("left_padded", _left),
}
LENGTH = re.compile(r"length_le:([1-9]\d*)")


class Grants:
    """What a user grants about a model's inputs.

    Parameters
    ----------
    assume : collection of str
        "right-padding", "left-padding", "length_le:N".
    model : ir.Model
        Whose inputs are meant: what is no input can't be checked, and is not taken for granted.

    Raises
    ------
    ValueError
        If there is no such assumption.
    """

    def __init__(self, assume: Collection[str], model: ir.Model) -> None:
        for text in assume:
            if text not in GRANTS and not LENGTH.fullmatch(text):
                raise ValueError(
                    f"there is no assumption {text!r}; give {', '.join(GRANTS)}, or length_le:N with a number"
                )
        self.assume = sorted(set(assume))
        self.inputs = list(model.graph.inputs)
        entries = (read_io(model.metadata_props) or {}).get("inputs", {})
        self.pads = {str(value.name): entries.get(value.name, {}).get("pad", 0) for value in self.inputs}

    def padding(self, mask: Mask, tensors: Mapping[str, ir.Value]) -> Iterator[Fact]:
        """Yield what is granted of the paddings in a mask."""
        for name, pad in key_paddings(mask):
            value = tensors[name]
            if value not in self.inputs or self.pads[str(value.name)] != pad:
                # Session could not check it, or would check another value.
                continue
            for text in self.assume:
                if text in GRANTS:
                    check, holds = GRANTS[text]
                    assumed = Assumed(str(value.name), check, 1, f"--assume {text}")
                    yield Fact(holds(name, pad), f"{value.name} is {check}", assumed)

    def lengths(self, lengths: Lengths, mask: Mask, tensors: Mapping[str, ir.Value]) -> Iterator[Fact]:
        """Yield what is granted of the number of keys of self-attention."""
        most = min((int(match[1]) for match in map(LENGTH.fullmatch, self.assume) if match), default=None)
        if most is None or lengths.cross:
            return
        named = [(tensors[n], spec.dims.index("k")) for n, spec in mask.tensors.items() if spec.dims in ("bk", "bqk")]
        for value in self.inputs:
            shape = value.shape or ()
            named += [
                (value, axis)
                for axis, dim in enumerate(shape)
                if isinstance(dim, ir.SymbolicDim) and dim.value is not None and dim.value == lengths.keys
            ]
        for value, axis in named:
            if value in self.inputs:
                assumed = Assumed(str(value.name), f"length_le:{most}", axis, f"--assume length_le:{most}")
                yield Fact(Window(most - 1, most - 1), f"no more than {most} keys", assumed)
                return


def key_paddings(mask: Mask) -> list[tuple[str, int]]:
    """Return the tensors that say which keys are padding, where no padding is attended, each with its pad value."""
    found = []
    for leaf in mask.leaves:
        match = re.fullmatch(r"padding\(.*?(?: != (-?\d+))?\)", str(leaf), re.DOTALL)
        if match and mask.implies(leaf):
            found.append((next(iter(leaf.tensors)), int(match[1] or 0)))
    return found


def length_facts(lengths: Lengths) -> Iterator[Fact]:
    """Yield what the graph's own fixed lengths say of the distance of a query and a key."""
    if lengths.cross:
        if isinstance(lengths.keys, int):
            yield Fact(Window(-1, lengths.keys - 1), f"{lengths.keys} keys")
        if isinstance(lengths.queries, int):
            yield Fact(Window(lengths.queries - 1, -1), f"{lengths.queries} queries")
        return
    if isinstance(lengths.keys, int):
        yield Fact(Window(lengths.keys - 1, -1), f"{lengths.keys} keys")
    if isinstance(lengths.queries, int):
        # No key comes after the last query.
        yield Fact(Window(-1, lengths.queries - 1), f"{lengths.queries} queries")
