"""From a Softmax down to the product with the values: what happens to the weights on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ...models.masks import Mask
from . import rules
from . import terms as t
from .algebra import Axes, to_mask
from .interpreter import Interpreter
from .scores import MOVES, PRODUCTS, NoAttention
from .terms import Term
from .values import Index, NotFollowed, constant_of, describe, is_standard

__all__ = ["Weights", "follow_weights"]

Parts = Sequence[tuple[Term, ir.Value | None]]

# These keep every element at its place.
IN_PLACE = ("Cast", "CastLike", "Identity", "Dropout", "Where")
AFTER = (*MOVES, "Where", "Slice", "Mul", "Div")


@dataclass
class Weights:
    """The weights that values are multiplied with.

    Attributes
    ----------
    value : ir.Value
        The last value in which they are at the places of the scores.
    dropped : bool
        Whether columns are cut off, as a sink's is.
    nan_zeroed, rows_zeroed : bool
        Whether rows that became NaN, or rows that another condition chooses, are zero.
    kept : tuple of (ir.Value, bool)
        Conditions under which weights are not set to zero, and whether they hold where true.
    """

    value: ir.Value
    dropped: bool = False
    nan_zeroed: bool = False
    rows_zeroed: bool = False
    kept: tuple[tuple[ir.Value, bool], ...] = ()

    def masked(
        self, x: Interpreter, mask: Mask, parts: Parts, axes: Axes, index: Index
    ) -> tuple[Mask, list[tuple[Term, ir.Value | None]]]:
        """Return the mask of the scores at `index` with what sets whole rows to zero.

        Raises
        ------
        NotFollowed
            If weights of attended keys are set to zero: those of the other keys were not made for that.
        """
        parts = list(parts)
        for condition, polarity in self.kept:
            term = x.term(condition, rules.broadcast_index(x.shape(condition), index))
            term = term if polarity else t.negate(term)
            if axes.k in set(t.atoms_of(term)):
                same = t.both(*(part for part, _ in parts)) is term
                if not same and not any(part is term for part, _ in parts) and not _implied(mask, term, axes):
                    raise NotFollowed(
                        f"weights are set to zero by {describe(condition)} after the Softmax: those that are left "
                        "don't add up to 1"
                    )
                self.rows_zeroed = self.rows_zeroed or same
                continue
            self.rows_zeroed = True
            try:
                row = to_mask(term, axes)
            except NotFollowed:
                # Which rows are without keys is computed from the mask: running the graph tells whether it is so.
                continue
            mask = mask & row
            parts.append((term, condition))
        return mask, parts


def _implied(mask: Mask, term: Term, axes: Axes) -> bool:
    try:
        return mask.implies(to_mask(term, axes))
    except NotFollowed:
        return False


def follow_weights(x: Interpreter, node: ir.Node) -> Weights:
    """Follow a Softmax's result down to the product with the values.

    Raises
    ------
    NotFollowed
        If there is none, or if something happens to the weights that has no place in attention.
    """
    waiting = [(node.outputs[0], Weights(node.outputs[0]))]
    seen: set[ir.Value] = set()
    problem: NotFollowed | None = None
    while waiting:
        value, weights = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        for user, place in value.uses():
            if user.op_type in PRODUCTS and place < 2:
                other = user.inputs[1 - place]
                if other is not None and constant_of(other) is None:
                    return weights
            elif user.op_type in AFTER and is_standard(user):
                try:
                    waiting.append((user.outputs[0], _step(x, user, value, place, weights)))
                except NotFollowed as error:
                    problem = error
    raise problem or NoAttention("its Softmax's result is not multiplied by values: it is no attention")


def _step(x: Interpreter, node: ir.Node, value: ir.Value, place: int, weights: Weights) -> Weights:
    in_place = weights.value is value
    after = node.outputs[0]
    following = Weights(
        after if in_place and node.op_type in IN_PLACE else weights.value,
        weights.dropped,
        weights.nan_zeroed,
        weights.rows_zeroed,
        weights.kept,
    )
    if node.op_type == "Slice":
        if not in_place:
            raise NotFollowed(f"{describe(after)} cuts weights that were moved")
        _drops_last(x, node, value)
        following.value, following.dropped = after, True
    elif node.op_type == "Where":
        _zeroed(x, node, place, in_place, following)
    elif node.op_type in ("Mul", "Div"):
        other = node.inputs[1 - place]
        assert other is not None
        shape = x.shape(other)
        term = x.term(other, (t.ZERO,) * len(shape)) if all(t.fixed(n) == 1 for n in shape) else None
        if (place != 0 and node.op_type == "Div") or term is None or term.op != "number" or term.args[0] != 1:
            raise NotFollowed(f"weights are multiplied by {describe(other)} after the Softmax: they don't add up to 1")
        following.value = after if in_place else weights.value
    return following


def _drops_last(x: Interpreter, node: ir.Node, value: ir.Value) -> None:
    shape = x.shape(value)
    for axis, (start, length, step) in rules.slices(x, node).items():
        short = t.sub(shape[axis], length)
        if start is not t.ZERO or step != 1 or short is not (t.ONE if axis == len(shape) - 1 else t.ZERO):
            raise NotFollowed(f"{describe(node.outputs[0])} cuts weights")


def _zeroed(x: Interpreter, node: ir.Node, place: int, in_place: bool, weights: Weights) -> None:
    """Note a Where that sets weights to zero."""
    condition, fill = node.inputs[0], node.inputs[3 - place] if place else None
    if condition is None or fill is None:
        raise NotFollowed(f"{describe(node.outputs[0])} takes weights for a condition")
    shape = x.shape(fill)
    term = x.term(fill, (t.ZERO,) * len(shape)) if all(t.fixed(n) == 1 for n in shape) else None
    if term is None or term.op != "number" or term.args[0] != 0:
        raise NotFollowed(f"{describe(node.outputs[0])} puts {describe(fill)} for weights")
    source = condition.producer()
    if source is not None and source.op_type == "IsNaN" and place == 2:
        weights.nan_zeroed = True
    elif in_place:
        weights.kept = (*weights.kept, (condition, place == 1))
    else:
        raise NotFollowed(f"{describe(node.outputs[0])} chooses among weights that were moved")
