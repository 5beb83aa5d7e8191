"""What an attention asks of a kernel, read from its canonical node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from ...models.masks import Full, Mask, Window
from .canonical import Inputs, Site

__all__ = ["Asked", "Assumed", "Dim", "Lengths", "Parts", "dim", "parts"]

# A size, the name of one, or not known.
Dim = int | str | None
KEY_ONLY = ("full", "padding(", "prefix(")


@dataclass(frozen=True)
class Lengths:
    """Sizes of an attention: batch, queries, all keys (those of a cache with them), and those of the cache.

    `cross` is false only where query q is known to be the token of key q + past.
    """

    batch: Dim
    queries: Dim
    keys: Dim
    past: Dim
    cross: bool


@dataclass(frozen=True)
class Assumed:
    """A fact that the file takes for granted of an input, as `maskport.assumes` holds it."""

    input: str
    check: str
    axis: int
    source: str

    def to_json(self) -> dict[str, object]:
        """Return an entry of `maskport.assumes`."""
        return {"input": self.input, "check": self.check, "axis": self.axis, "source": self.source}


@dataclass(frozen=True)
class Parts:
    """A mask taken apart: what it is the conjunction of.

    Attributes
    ----------
    left, right : int
        The window, as `Window` has it; (-1, -1) is none.
    rest : Mask
        All else; `key_only` says that it asks nothing of the query.
    """

    left: int
    right: int
    rest: Mask
    key_only: bool


@dataclass(frozen=True)
class Asked:
    """One attention to be computed.

    Attributes
    ----------
    site : Site
        Its attributes, with the mask as the graph has it.
    inputs : Inputs
        Its inputs.
    mask : Mask
        What is to be attended: the site's mask, or what it was simplified to.
    lengths : Lengths
        Its sizes.
    dtype : str
        The element type that it will have.
    opset : int
        The standard operators' version.
    presents : bool
        Whether it gives keys and values for a cache.
    right_padded : mapping of str to Assumed
        The mask's paddings that the user grants to be on the right.
    """

    site: Site
    inputs: Inputs
    mask: Mask
    lengths: Lengths
    dtype: str
    opset: int
    presents: bool
    right_padded: Mapping[str, Assumed] = field(default_factory=dict)

    @classmethod
    def of(cls, node: ir.Node, dtype: str | None, opset: int) -> Asked:
        """Read a canonical node that is to have an element type, or to keep its own."""
        site, inputs = Site.of(node), Inputs.of(node)
        past: Dim = 0 if inputs.past_key is None else dim(inputs.past_key, 2)
        new = dim(inputs.key, 1)
        keys = past + new if isinstance(past, int) and isinstance(new, int) else new if past == 0 else None
        queries = dim(inputs.query, 1)
        lengths = Lengths(dim(inputs.query, 0), queries, keys, past, site.cross or queries is None or queries != new)
        return cls(
            site, inputs, site.mask, lengths, dtype or type_name(inputs.query.dtype), opset, len(node.outputs) > 1
        )


def type_name(dtype: ir.DataType | None) -> str:
    """Return the name of an element type, as numpy and PyTorch have it."""
    return "float32" if dtype in (ir.DataType.FLOAT, None) else dtype.name.lower()


def dim(value: ir.Value, axis: int) -> Dim:
    """Return a size of a value, or its name, or None."""
    if value.shape is None:
        return None
    size = value.shape[axis]
    return size.value if isinstance(size, ir.SymbolicDim) else size


def parts(mask: Mask) -> Parts:
    """Take a mask apart."""
    rest, sides = Full(), (-1, -1)
    for conjunct in mask.conjuncts:
        if not conjunct.tensors and conjunct == Window(*conjunct.window):
            sides = conjunct.window
        else:
            rest = rest & conjunct
    rest = rest.simplify()
    return Parts(*sides, rest, all(str(leaf).startswith(KEY_ONLY) for leaf in rest.leaves))
