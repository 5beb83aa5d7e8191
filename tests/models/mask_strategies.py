"""Random masks, each with a second, independent reading of what it means at one point."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from maskport.models import (
    Adjacency,
    Causal,
    Chunked,
    Dense,
    Full,
    K,
    KeyPadding,
    Mask,
    Prefix,
    Q,
    QueryPadding,
    Row,
    Segments,
    Window,
    past,
)

# The cells that each tensor is read at: name -> positions after b.
CELLS = {"m": ("k", "p"), "ids": ("k", "p"), "doc": ("k", "p"), "at": ("q",), "n": ("",), "g": ("qk",), "d": ("hqk",)}


@dataclass(frozen=True)
class Point:
    """One query and key at given lengths, with the value of each tensor cell that can be read there."""

    q_len: int
    k_len: int
    past: int
    q: int
    k: int
    cells: dict[tuple[str, tuple[int, ...]], int]

    def read(self, name: str, axes: str) -> int:
        at = {"q": self.q, "k": self.k, "p": self.q + self.past, "h": 0}
        return self.cells[name, tuple(at[axis] for axis in axes)]

    def dense(self, mask: Mask) -> bool:
        """Evaluate a mask at this point by its own `dense`, on tensors that hold the cells."""
        length = {"b": 1, "h": 1, "q": self.q_len, "k": self.k_len, "p": self.k_len}
        tensors = {}
        for name, spec in mask.tensors.items():
            shape = [length[axis] for axis in spec.dims]
            tensors[name] = np.zeros(shape, bool if spec.dims == "bhqk" else np.int64)
            for (of, position), value in self.cells.items():
                if of == name and all(i < n for i, n in zip(position, shape[1:], strict=True)):
                    tensors[name][(0, *position)] = value
        attend = mask.dense(self.q_len, self.k_len, self.past, **tensors)
        return bool(np.broadcast_to(attend, (1, 1, self.q_len, self.k_len))[0, 0, self.q, self.k])


Meaning = Callable[[Point], bool]
Case = tuple[Mask, Meaning]


def _offsets() -> st.SearchStrategy[tuple[object, Callable[[Point], int]]]:
    symbols = [
        (past, lambda x: x.past),
        (0, lambda x: 0),
        (K - Q, lambda x: x.k_len - x.q_len),
        (Row("n") - Q, lambda x: x.read("n", "") - x.q_len),
        (Row("n"), lambda x: x.read("n", "")),
    ]
    weighted = st.sampled_from([symbols[0]] * 6 + symbols)
    return st.builds(
        lambda symbol, const: (symbol[0] + const, lambda x: symbol[1](x) + const),
        weighted,
        st.sampled_from([0, 0, -1, 1]),
    )


def _causal(offset: tuple) -> Case:
    return Causal(offset[0]), lambda x: x.k <= x.q + offset[1](x)


def _window(left: int, right: int, offset: tuple) -> Case:
    def meaning(x: Point) -> bool:
        center = x.q + offset[1](x)
        return (left < 0 or x.k >= center - left) and (right < 0 or x.k <= center + right)

    return Window(left, right, offset[0]), meaning


def _prefix(shift: int) -> Case:
    return Prefix("n") + shift, lambda x: x.k < x.read("n", "") + shift


def _chunked(size: int) -> Case:
    return Chunked(size), lambda x: (x.q + x.past) // size == x.k // size


def _padding(name: str, pad: int) -> Case:
    return KeyPadding(name, pad), lambda x: x.read(name, "k") != pad


def _query_padding(name: str, pad: int) -> Case:
    return QueryPadding(name, pad), lambda x: x.read(name, "p") != pad


LEAVES: dict[str, st.SearchStrategy[Case]] = {
    "full": st.just((Full(), lambda x: True)),
    "causal": st.builds(_causal, _offsets()),
    "window": st.builds(_window, st.integers(-1, 3), st.integers(-1, 2), _offsets()),
    "chunked": st.builds(_chunked, st.integers(1, 4)),
    "prefix": st.builds(_prefix, st.integers(-1, 1)),
    "padding": st.builds(_padding, st.sampled_from(["m", "ids", "doc"]), st.integers(0, 1)),
    "query_padding": st.builds(_query_padding, st.sampled_from(["m", "doc"]), st.integers(0, 1)),
    "segments": st.just((Segments("doc"), lambda x: x.read("doc", "p") == x.read("doc", "k"))),
    "segments2": st.just((Segments("ids", "at"), lambda x: x.read("at", "q") == x.read("ids", "k"))),
    "adjacency": st.just((Adjacency("g"), lambda x: x.read("g", "qk") != 0)),
    "dense": st.just((Dense("d"), lambda x: x.read("d", "hqk") != 0)),
}


def _joined(children: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    pair = st.tuples(children, children)
    return st.one_of(
        pair.map(lambda ab: (ab[0][0] & ab[1][0], lambda x: ab[0][1](x) and ab[1][1](x))),
        pair.map(lambda ab: (ab[0][0] | ab[1][0], lambda x: ab[0][1](x) or ab[1][1](x))),
        children.map(lambda a: (~a[0], lambda x: not a[1](x))),
    )


@st.composite
def cases(draw: st.DrawFn, max_leaves: int = 5, count: int = 1) -> list[Case]:
    """Draw `count` masks over the same few kinds of leaves, so that they have a chance to be equal."""
    kinds = draw(st.lists(st.sampled_from(sorted(LEAVES)), min_size=1, max_size=3, unique=True))
    leaves = st.one_of([LEAVES[kind] for kind in kinds])
    return [draw(st.recursive(leaves, _joined, max_leaves=max_leaves)) for _ in range(count)]


def masks(max_leaves: int = 6) -> st.SearchStrategy[Mask]:
    """Draw a mask."""
    return cases(max_leaves).map(lambda drawn: drawn[0][0])


def points(names: set[str], max_total: int, row_values: tuple[int, ...] = (-1, 0, 1, 2, 3, 4)) -> Iterator[Point]:
    """Yield every point with `q_len + k_len + past <= max_total`, with every value of the tensors' cells there."""
    for total in range(2, max_total + 1):
        for q_len, k_len in itertools.product(range(1, total), repeat=2):
            past_len = total - q_len - k_len
            if past_len < 0 or (names & {"m", "ids", "doc"} and q_len + past_len > k_len):
                continue
            for q, k in itertools.product(range(q_len), range(k_len)):
                at = {"q": q, "k": k, "p": q + past_len, "h": 0}
                cells = sorted(
                    {(name, tuple(at[axis] for axis in axes)) for name in sorted(names) for axes in CELLS[name]}
                )
                ranges = [{"n": row_values, "g": (0, 1), "d": (0, 1)}.get(name, (0, 1, 2)) for name, _ in cells]
                for values in itertools.product(*ranges):
                    yield Point(q_len, k_len, past_len, q, k, dict(zip(cells, values, strict=True)))
