"""The mask algebra: a mask is a predicate `attend(b, h, q, k)`, joined by `&`, `|` and `~`; True means attend.

    >>> mask = Causal() & KeyPadding("attention_mask")
    >>> print(mask)
    causal & padding(attention_mask)
    >>> Window(-1, 0) == Causal()
    True

With `p = q + past`, where `past` counts the keys of a cache that come before the first query:

| leaf | attend(b, h, q, k) | tensor |
|---|---|---|
| Full() | true | |
| Causal(offset=past) | k <= q + offset | |
| Window(left, right, offset=past) | q + offset - left <= k <= q + offset + right, -1 is unbounded | |
| Chunked(size) | p // size == k // size | |
| Prefix(length) | k < length[b] | int [B] |
| KeyPadding(name, pad=0) | name[b, k] != pad | bool or int [B, K] |
| QueryPadding(name, pad=0) | name[b, p] != pad | bool or int [B, K] |
| Segments(name) | name[b, p] == name[b, k] | int [B, K] |
| Segments(k_name, q_name) | q_name[b, q] == k_name[b, k] | int [B, K] and [B, Q] |
| Adjacency(name) | name[b, q, k] != 0 | bool or int [B or 1, Q, K] |
| Dense(name) | name[b, h, q, k] | bool, broadcastable to [B, H, Q, K] |

Without a cache `past` is 0, so `Causal()` is aligned top-left when the lengths differ (as ai.onnx Attention is);
`Causal(K - Q)` is aligned bottom-right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from . import mask_graph, mask_grid, mask_hash, mask_logic, mask_simplify, mask_text
from .mask_leaves import LEAVES, Expr, TensorSpec, leaves_of, renamed, tensors_of
from .mask_logic import Witness
from .mask_rows import Affine, K, Q, Row, as_affine, past

if TYPE_CHECKING:
    import onnx

__all__ = [
    "Adjacency",
    "Affine",
    "Causal",
    "Chunked",
    "Dense",
    "Full",
    "K",
    "KeyPadding",
    "Mask",
    "Prefix",
    "Q",
    "QueryPadding",
    "Row",
    "Segments",
    "TensorSpec",
    "Window",
    "Witness",
    "past",
]


class Mask:
    """A mask expression: immutable, hashable, equal to every expression that means the same.

    Made by the leaves of this module and by `&`, `|`, `~`; `Mask.parse` reads one from text. Two masks are equal
    if they attend the same pairs at all lengths and for all tensors.
    """

    __slots__ = ("_expr",)
    _expr: Expr

    def __init__(self) -> None:
        raise TypeError("a mask is made by its leaves, such as Causal() & KeyPadding('attention_mask')")

    @classmethod
    def _of(cls, expr: Expr) -> Mask:
        tensors_of(expr)
        mask = object.__new__(cls)
        object.__setattr__(mask, "_expr", expr)
        return mask

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a mask is immutable; combine masks with &, | and ~")

    def __reduce__(self) -> tuple[Callable[[Expr], Mask], tuple[Expr]]:
        return Mask._of, (self._expr,)

    def _joined(self, head: str, other: object) -> Any:
        if not isinstance(other, Mask):
            return NotImplemented
        parts = [part for e in (self._expr, other._expr) for part in (e[1:] if e[0] == head else (e,))]
        return Mask._of((head, *parts))

    def __and__(self, other: Mask) -> Mask:
        """Attend where both masks do."""
        return self._joined("and", other)

    def __or__(self, other: Mask) -> Mask:
        """Attend where one of the masks does."""
        return self._joined("or", other)

    def __invert__(self) -> Mask:
        """Attend where this mask does not."""
        return Mask._of(self._expr[1] if self._expr[0] == "not" else ("not", self._expr))

    def __add__(self, shift: Affine | int) -> Mask:
        """Lengthen a prefix: `Prefix("seqlens_k") + 1` is `k < seqlens_k[b] + 1`."""
        if self._expr[0] != "prefix":
            raise TypeError(
                f"only a Prefix can be shifted by +; give `{self}` an offset instead, as in Causal(past + 1)"
            )
        return Mask._of(("prefix", as_affine(self._expr[1] + shift, "the length of Prefix")))

    def __sub__(self, shift: Affine | int) -> Mask:
        """Shorten a prefix."""
        return self + -shift

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of the mask `{self}` is not defined: join masks by &, | and ~, not and, or and not")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mask):
            return NotImplemented
        if self._expr == other._expr:
            return True
        theirs = other.tensors
        if any(spec.shape != theirs.get(name, spec).shape for name, spec in self.tensors.items()):
            return False  # no tensor can be given to both
        return hash(self) == hash(other) and self.implies(other) and other.implies(self)

    def __hash__(self) -> int:
        return mask_hash.fingerprint(self._expr)

    def implies(self, other: Mask) -> bool:
        """Return whether `other` attends wherever this mask does."""
        return not mask_logic.satisfiable(("and", self._expr, ("not", other._expr)))

    def witness(self, other: Mask, *, self_attention: bool = False) -> Witness | None:
        """Return the smallest `(sizes, b, h, q, k, tensors)` where this mask and `other` differ, or None.

        Smallest is the least `q_len + k_len + past`; then the least past, q_len, k_len, q and k.

        Parameters
        ----------
        self_attention : bool
            Look only at lengths with `k_len == q_len + past`.

        Returns
        -------
        Witness or None
            `self.dense(*sizes, **tensors)` and `other.dense(...)` differ at `[b, h, q, k]`. `tensors` are numpy
            arrays of batch 1, one for each name in either mask (pass each mask its own names).

        Examples
        --------
        >>> Causal().witness(Window(2, 0))
        Witness(sizes=Sizes(q_len=4, k_len=1, past=0), b=0, h=0, q=3, k=0, tensors={})
        """
        one, two = self._expr, other._expr
        differ = ("or", ("and", one, ("not", two)), ("and", two, ("not", one)))
        return mask_logic.witness(differ, self_attention)

    @property
    def tensors(self) -> dict[str, TensorSpec]:
        """The tensors that the expression names, by name, in order of first use."""
        return dict(tensors_of(self._expr))

    def simplify(self) -> Mask:
        """Return an equal mask in normal form: what `str` writes."""
        return Mask._of(mask_simplify.simplify(self._expr))

    @property
    def leaves(self) -> tuple[Mask, ...]:
        """The leaves of the normal form, each once, from left to right."""
        return tuple(map(Mask._of, dict.fromkeys(leaves_of(mask_simplify.simplify(self._expr)))))

    @property
    def window(self) -> tuple[int, int]:
        """The smallest `(left, right)` such that the mask implies `Window(left, right)`; -1 is unbounded.

        `right` is 0 for a mask that implies `Causal()`.

        Examples
        --------
        >>> (Chunked(4) & Causal()).window
        (3, 0)
        """
        reach = mask_logic.reach(self._expr)
        sides = ((lambda n: Window(n, -1)), (lambda n: Window(-1, n)))
        return tuple(_least(lambda n, side=side: self.implies(side(n)), reach) for side in sides)  # type: ignore[misc,return-value]

    @property
    def conjuncts(self) -> tuple[Mask, ...]:
        """The masks whose conjunction this one is, in normal form."""
        return tuple(map(Mask._of, mask_simplify.conjuncts(self._expr)))

    def __str__(self) -> str:
        return mask_text.text(mask_simplify.simplify(self._expr))

    def __repr__(self) -> str:
        return mask_text.python(self._expr)

    @staticmethod
    def parse(text: str) -> Mask:
        """Read a mask from the text that `str` writes.

        Raises
        ------
        ValueError
            If the text is no mask; the message shows the piece that could not be read.

        Examples
        --------
        >>> Mask.parse("window(5, 0) & padding(input_ids != 1)") == Window(5, 0) & KeyPadding("input_ids", pad=1)
        True
        """
        return mask_text.parse(text, _CONSTRUCTORS)

    def dense(self, q_len: int, k_len: int, past: int = 0, *, device: Any = None, **tensors: Any) -> Any:
        """Evaluate the mask at every point: slow, obvious, and the oracle of every test.

        Parameters
        ----------
        q_len, k_len : int
            Number of queries Q and keys K.
        past : int
            Number of keys that come before the first query.
        device : torch.device or str, optional
            Return a torch tensor on this device even if no tensor is given.
        **tensors : numpy.ndarray or torch.Tensor
            One for each name in `mask.tensors`, of the shape that its leaf reads; batch may be 1.

        Returns
        -------
        numpy.ndarray or torch.Tensor
            Bool, of rank 4 and broadcastable to [B, H, Q, K]; True means attend. Torch if a tensor is, or `device`
            is given.

        Raises
        ------
        TypeError
            If a tensor is missing, unknown or of the wrong dtype.
        ValueError
            If a tensor has the wrong shape.
        """
        return mask_grid.dense(self._expr, self, q_len, k_len, past, device, tensors)

    def at(self, q: Any, k: Any, /, q_len: int, k_len: int, past: int = 0, **tensors: Any) -> np.ndarray:
        """Evaluate the mask at chosen queries and keys, where the lengths are too large for `dense`.

        Parameters
        ----------
        q, k : sequence of int
            Indices of queries and keys.
        q_len, k_len, past, **tensors
            As for `dense`, with numpy arrays alone.

        Returns
        -------
        numpy.ndarray
            Bool [B or 1, H or 1, len(q), len(k)]: `dense(...)[:, :, q][..., k]`.

        Examples
        --------
        >>> Window(4095, 0).at([4095, 4096], [0, 1], 8192, 8192).tolist()
        [[[[True, True], [False, True]]]]
        """
        return mask_grid.at(self._expr, self, q, k, q_len, k_len, past, tensors)

    def rename(self, names: Mapping[str, str]) -> Mask:
        """Return the mask with other names for its tensors, by their old names.

        Examples
        --------
        >>> print(KeyPadding("mask").rename({"mask": "attention_mask"}))
        padding(attention_mask)
        """
        return Mask._of(renamed(self._expr, names))

    def mask_mod(
        self, past: int = 0, *, q_len: int | None = None, k_len: int | None = None, **tensors: Any
    ) -> Callable[[Any, Any, Any, Any], Any]:
        """Return the mask as a FlexAttention `mask_mod(b, h, q_idx, kv_idx)`.

        It works in `create_mask` and `create_block_mask`, and always returns a bool tensor.

        Parameters
        ----------
        past : int
            Number of keys that come before the first query.
        q_len, k_len : int, optional
            Lengths, needed only by offsets that name `Q` or `K`.
        **tensors : numpy.ndarray or torch.Tensor
            One for each name in `mask.tensors`, on the device of the indices.

        Raises
        ------
        TypeError
            If a tensor or a length is missing or unknown.
        """
        return mask_grid.mask_mod(self._expr, self, past, q_len, k_len, tensors)

    def draw(self, q_len: int, k_len: int | None = None, past: int = 0, **tensors: Any) -> str:
        """Draw the mask as text: a row per query, a column per key, a panel per batch row and head.

        Parameters
        ----------
        q_len, k_len : int
            Number of queries and keys; `k_len` is `q_len + past` unless given.
        past, **tensors
            As for `dense`.

        Examples
        --------
        >>> print(Window(1, 0).draw(4))
          0 1 2 3
        0 ■ · · ·
        1 ■ ■ · ·
        2 · ■ ■ ·
        3 · · ■ ■
        """
        k_len = q_len + past if k_len is None else k_len
        attend = np.asarray(self.dense(q_len, k_len, past, **tensors))
        return mask_text.draw(np.broadcast_to(attend, (*attend.shape[:2], q_len, k_len)))

    def to_onnx(self, *, opset_version: int = 20, dtypes: Mapping[str, Any] | None = None) -> onnx.ModelProto:
        """Return an ONNX model that computes the mask.

        Its inputs are `q_len`, `k_len` and `past` (int64 scalars) and the mask's tensors by name; its output `attend`
        is bool, of rank 4 and broadcastable to [B, H, Q, K]. It needs the packages of the extra `graph`.

        Parameters
        ----------
        opset_version : int
            At least 13.
        dtypes : mapping of str to numpy dtype, optional
            Types of the tensor inputs, such as `{"attention_mask": bool}`; int64 unless given, bool for `Dense`.

        Raises
        ------
        TypeError
            If `dtypes` names a tensor that the mask doesn't.
        ValueError
            If a tensor can't have that type, is called as a length is, or the opset is too old.
        """
        return mask_graph.to_onnx(self._expr, self, opset_version, dtypes or {})


def _least(holds: Callable[[int], bool], most: int) -> int:
    """Return the least number from 0 to `most` from which on `holds` does, or -1."""
    if not holds(most):
        return -1
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _leaf(kind: str, *arguments: Any) -> Mask:
    return Mask._of((kind, *arguments))


def _integer(value: Any, what: str, least: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{what} is an integer; got {value!r} ({type(value).__name__})")
    if least is not None and value < least:
        raise ValueError(f"{what} is at least {least}; got {value}")
    return int(value)


# Keywords of the methods that take tensors by name.
_RESERVED = ("q_len", "k_len", "past", "device")


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a tensor's name, a string; got {value!r} ({type(value).__name__})")
    if not value or value in _RESERVED:
        raise ValueError(f"{what} is a tensor's name, not empty and none of {', '.join(_RESERVED)}; got {value!r}")
    return value


def _row(value: Affine | int | str, what: str) -> Affine:
    affine = as_affine(Row(value) if isinstance(value, str) else value, what)
    if affine.row is not None:
        _name(affine.row, what)
    return affine


def Full() -> Mask:
    """Every query attends every key."""
    return _leaf("full")


def Causal(offset: Affine | int | str = past) -> Mask:
    """A query attends its own position and those before: `k <= q + offset`.

    Parameters
    ----------
    offset : Affine, int or str
        A number, `past` (the default: top-left without a cache), `K - Q` (bottom-right), or a row value such as
        `Row("nonpad") - Q` (ai.onnx Attention with `nonpad_kv_seqlen`); a string names an int tensor of shape [B].

    Examples
    --------
    >>> print(Causal().draw(3))
      0 1 2
    0 ■ · ·
    1 ■ ■ ·
    2 ■ ■ ■
    """
    return _leaf("causal", _row(offset, "the offset of Causal"))


def Window(left: int, right: int, offset: Affine | int | str = past) -> Mask:
    """A query attends its neighbours: `q + offset - left <= k <= q + offset + right`.

    `left` and `right` count neighbours and leave the query itself out; -1 is unbounded (as ai.onnx Attention 25).
    `Window(-1, 0)` is `Causal()`.

    Raises
    ------
    ValueError
        If `left` or `right` is less than -1.
    """
    left, right = _integer(left, "the left of Window", -1), _integer(right, "the right of Window", -1)
    return _leaf("window", left, right, _row(offset, "the offset of Window"))


def Chunked(size: int) -> Mask:
    """A query attends the keys in its own chunk of `size` positions: `p // size == k // size`, with p = q + past.

    Raises
    ------
    ValueError
        If `size` is less than 1.
    """
    return _leaf("chunked", _integer(size, "the size of Chunked", 1))


def Prefix(length: Affine | int | str) -> Mask:
    """Every query attends the first keys: `k < length[b]`.

    Parameters
    ----------
    length : str, Affine or int
        The name of an int tensor of shape [B], or a sum with one: `Prefix("seqlens_k") + 1`.
    """
    return _leaf("prefix", _row(length, "the length of Prefix"))


def KeyPadding(name: str, pad: int = 0) -> Mask:
    """Every query attends the real tokens among the keys: `name[b, k] != pad`.

    Parameters
    ----------
    name : str
        A bool or int tensor of shape [B, K]: a mask of ones and zeros, or token ids with their pad id.
    pad : int
        The value that stands for padding.
    """
    return _leaf("padding", _name(name, "the name of KeyPadding"), _integer(pad, "the pad of KeyPadding"))


def QueryPadding(name: str, pad: int = 0) -> Mask:
    """Only queries that are real tokens attend: `name[b, p] != pad`, with p = q + past.

    Parameters
    ----------
    name : str
        A bool or int tensor of shape [B, K].
    pad : int
        The value that stands for padding.
    """
    return _leaf("query_padding", _name(name, "the name of QueryPadding"), _integer(pad, "the pad of QueryPadding"))


def Segments(k_name: str, q_name: str | None = None) -> Mask:
    """A query attends the keys of its own segment (packed documents).

    Parameters
    ----------
    k_name : str
        An int tensor of shape [B, K]: the segment of each key.
    q_name : str, optional
        An int tensor of shape [B, Q]: the segment of each query. Without it, that of position p = q + past in
        `k_name`.
    """
    q_name = None if q_name is None else _name(q_name, "the q_name of Segments")
    return _leaf("segments", _name(k_name, "the k_name of Segments"), q_name)


def Adjacency(name: str) -> Mask:
    """A query attends its neighbours in a graph: `name[b, q, k] != 0`.

    Parameters
    ----------
    name : str
        A bool or int tensor of shape [B or 1, Q, K].
    """
    return _leaf("adjacency", _name(name, "the name of Adjacency"))


def Dense(name: str) -> Mask:
    """A query attends where a tensor says so: `name[b, h, q, k]`.

    Parameters
    ----------
    name : str
        A bool tensor, broadcastable to [B, H, Q, K].
    """
    return _leaf("dense", _name(name, "the name of Dense"))


_CONSTRUCTORS = {kind: globals()[leaf.constructor] for kind, leaf in LEAVES.items()}
