"""Values of [B, S, ...] as values of [T, ...]: computed on the tokens where the operator allows it, else gathered.

A value's *roles* are its axes of the batch and the sequence. Its packed form has the tokens in front and its other axes
after them, in their order; an operator commutes with picking tokens if its rule (see `rules`) can write the packed
output from packed inputs. Nothing is packed by what a model is, only by what its operators do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ..builder import Builder
from ..symbolic import terms as t
from ..symbolic.interpreter import Interpreter
from ..symbolic.terms import Term
from ..symbolic.values import Index, NotFollowed
from .tokens import Tokens, put_back

__all__ = ["Mismatch", "Packed", "Packer", "Roles"]

# Rules pull their inputs by recursion: through no more operators than this.
DEEPEST = 200


class Mismatch(Exception):
    """A packed value is asked for with other roles than it has."""


@dataclass(frozen=True)
class Roles:
    """The axes of the batch and of the sequence; None where a value has none, both the same where they are one axis."""

    batch: int | None
    sequence: int | None

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes, each once, in order."""
        return tuple(sorted({axis for axis in (self.batch, self.sequence) if axis is not None}))

    @property
    def merged(self) -> bool:
        """Whether one axis runs over all B * S tokens."""
        return self.batch is not None and self.batch == self.sequence

    def shifted(self, by: int) -> Roles:
        """Return the axes of an operand that is broadcast from the right, of a rank that is less by `by`."""
        return Roles(*(None if axis is None or axis < by else axis - by for axis in (self.batch, self.sequence)))

    def moved(self, places: dict[int, int]) -> Roles:
        """Return the roles where each axis is at another place."""
        return Roles(*(None if axis is None else places[axis] for axis in (self.batch, self.sequence)))


@dataclass(frozen=True)
class Packed:
    """A packed value.

    Attributes
    ----------
    value : ir.Value
        [T, *rest], or [*rest] if it is the same for all tokens.
    rest : tuple of Term
        Lengths of the other axes.
    by_token : bool
        Whether it has the axis of the tokens.
    inside : bool
        Whether it depends on an attention that is computed on tokens.
    """

    value: ir.Value
    rest: Index
    by_token: bool
    inside: bool


class Packer:
    """What is packed so far, in one domain of tokens.

    Attributes
    ----------
    x : Interpreter
        Shapes of the graph's values.
    batch, length : Term
        B and S.
    build : Builder
        Takes the new nodes.
    symbol : str
        What T is called in shapes: another name for each domain of tokens.
    """

    def __init__(
        self, x: Interpreter, tokens: Tokens, batch: Term, length: Term, build: Builder, symbol: str = "tokens"
    ) -> None:
        self.x, self.tokens, self.batch, self.length, self.build = x, tokens, batch, length, build
        self.symbol = symbol
        self.packed: dict[ir.Value, tuple[Roles, Packed]] = {}
        self._pulled: dict[tuple[ir.Value, Roles], Packed] = {}
        self._depth = 0

    def shape(self, value: ir.Value) -> Index:
        """Return the lengths of a value of the source."""
        return self.x.shape(value)

    def candidates(self, shape: Index) -> Iterator[Roles]:
        """Yield the roles that a value of this shape can have."""
        whole = t.mul(self.batch, self.length)
        for axis, n in enumerate(shape):
            if n is whole:
                yield Roles(axis, axis)
        batches = [axis for axis, n in enumerate(shape) if n is self.batch]
        lengths = [axis for axis, n in enumerate(shape) if n is self.length]
        for batch in batches:
            for length in lengths:
                if batch != length:
                    yield Roles(batch, length)

    def note(self, value: ir.Value, roles: Roles, packed: Packed) -> None:
        """Note that a value inside has a packed form."""
        self.packed[value] = (roles, self._stated(packed))

    def _stated(self, packed: Packed) -> Packed:
        """Let a packed value say its shape: passes that come later fuse what is known to be alike."""
        if packed.by_token and packed.value.shape is None:
            packed.value.shape = ir.Shape([self.symbol, *(t.fixed(n) for n in packed.rest)])
        return packed

    def pull(self, value: ir.Value, roles: Roles) -> Packed:
        """Return the packed form of a value.

        Raises
        ------
        Mismatch
            If it is packed with other roles.
        """
        if value in self.packed:
            known, packed = self.packed[value]
            if known != roles:
                raise Mismatch
            return packed
        key = (value, roles)
        if key not in self._pulled:
            self._pulled[key] = self._stated(self._pull(value, roles))
        return self._pulled[key]

    def _pull(self, value: ir.Value, roles: Roles) -> Packed:
        from .rules import pack_node

        shape = self.shape(value)
        one = [axis for axis in roles.axes if t.fixed(shape[axis]) == 1]
        self._check(shape, roles)
        if len(one) == len(roles.axes):
            return Packed(self._squeezed(value, one), self._rest(shape, roles), by_token=False, inside=False)
        node = value.producer()
        if node is not None and self._depth < DEEPEST:
            self._depth += 1
            try:
                found = pack_node(self, node, value, roles)
            except (Mismatch, NotFollowed):
                found = None
            finally:
                self._depth -= 1
            if found is not None:
                return found
        return self.gathered(value, roles)

    def _check(self, shape: Index, roles: Roles) -> None:
        """Refuse an axis that may be of another length than the tokens' axis that it is taken for."""
        lengths = {roles.batch: self.batch, roles.sequence: self.length}
        if roles.merged:
            lengths = {roles.batch: t.mul(self.batch, self.length)}
        for axis in roles.axes:
            if shape[axis] is not lengths[axis] and t.fixed(shape[axis]) != 1:
                raise Mismatch

    def _rest(self, shape: Index, roles: Roles) -> Index:
        return tuple(n for axis, n in enumerate(shape) if axis not in roles.axes)

    def _squeezed(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        return self.build.op("Squeeze", value, self.build.ints(*axes)) if axes else value

    def gathered(self, value: ir.Value, roles: Roles) -> Packed:
        """Pick the tokens of a value."""
        build, shape = self.build, self.shape(value)
        rest = self._rest(shape, roles)
        if roles.merged:
            assert roles.batch is not None
            picked = build.op("Gather", self._front(value, (roles.batch,), len(shape)), self.tokens.flat, axis=0)
            return Packed(picked, rest, by_token=True, inside=False)
        order = [axis for axis in (roles.batch, roles.sequence) if axis is not None]
        front = self._front(value, order, len(shape))
        real = [t.fixed(shape[axis]) != 1 for axis in order]
        if all(real) and len(order) == 2:
            picked = build.op("GatherND", front, self.tokens.pair)
        else:
            # One of the two is missing, or the same for all.
            front = self._squeezed(front, [place for place, has in enumerate(real) if not has])
            axis = order[real.index(True)]
            picked = build.op("Gather", front, self.tokens.row if axis == roles.batch else self.tokens.position, axis=0)
        return Packed(picked, rest, by_token=True, inside=False)

    def _front(self, value: ir.Value, order: Sequence[int], rank: int) -> ir.Value:
        perm = [*order, *(axis for axis in range(rank) if axis not in order)]
        return value if perm == list(range(rank)) else self.build.op("Transpose", value, perm=perm)

    def aligned(self, packed: Packed, rank: int) -> ir.Value:
        """Return a packed operand that broadcasts with a packed value of `rank` other axes."""
        missing = rank - len(packed.rest)
        if not packed.by_token or missing <= 0:
            return packed.value
        return self.build.op("Unsqueeze", packed.value, self.build.ints(*range(1, missing + 1)))

    def scattered(self, packed: Packed, roles: Roles, *, zero: bool) -> ir.Value:
        """Put tokens back to their places: [B, S, ...] with zeros elsewhere; `zero` keeps real tokens alone."""
        build, tokens, value = self.build, self.tokens, packed.value
        assert value.dtype is not None
        nothing = build.constant(0, value.dtype.numpy())
        if zero:
            real = (
                build.op("Unsqueeze", tokens.real, build.ints(*range(1, len(packed.rest) + 1)))
                if packed.rest
                else tokens.real
            )
            value = build.op("Where", real, value, nothing, dtype=value.dtype)
        dims = build.op("Shape", value, dtype=ir.DataType.INT64, start=1)
        whole = put_back(build, tokens, value, nothing, dims)
        if not roles.merged:
            whole = build.op("Reshape", whole, build.join(tokens.batch, tokens.length, dims))
        front = [roles.batch] if roles.merged else [roles.batch, roles.sequence]
        rank = len(packed.rest) + len(front)
        places = [*front, *(axis for axis in range(rank) if axis not in front)]
        if places == list(range(rank)):
            return whole
        perm = [0] * rank
        for source, target in enumerate(places):
            assert target is not None
            perm[target] = source
        return build.op("Transpose", whole, perm=perm)
