"""From a Softmax up to the product of queries and keys, collecting what happens to the scores on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import onnx_ir as ir

from . import rules
from . import terms as t
from .additive import is_fill, split_added
from .algebra import Axes
from .interpreter import Interpreter
from .terms import Term
from .values import Faulty, Index, NotFollowed, constant_of, describe, is_standard

__all__ = ["Addend", "NoAttention", "Scores", "follow", "source_of"]

# Operators that only say where an element comes from.
MOVES = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Identity", "Dropout", "Cast", "CastLike")
# Values that are looked at for one that is a bias alone.
MOST_ADDENDS = 32
PRODUCTS = ("MatMul", "FusedMatMul", "Gemm", "Einsum")


class NoAttention(NotFollowed):
    """A Softmax that weighs no values, such as that of a classifier."""


@dataclass(frozen=True)
class Addend:
    """A value that holds a bias: the element of it that is read, the bias in that, and whether it was subtracted."""

    value: ir.Value
    index: Index
    bias: tuple[Term, ...]
    negated: bool = False


@dataclass
class Scores:
    """Scores of a Softmax, taken apart.

    Attributes
    ----------
    product : ir.Node
        The product of queries and keys, and `index`, the element of it that the score at (b, h, q, k) is.
    query, key : ir.Value
        Its operands.
    scale : float
        Factor of the product.
    softcap : float
        0, or the bound of the scores' tanh; `capped` whether they were multiplied by it again.
    attend : list of Term
        Booleans that all must hold.
    masks, bias : list of ir.Value
        The values that mask, and that are added; `rows`, those that are the same for all keys: they change nothing.
    addends : list of Addend
        Each operand that was added to scores and holds a bias.
    fills : list of float
        What masked scores get; `replaced` whether a fill takes the score's place.
    sink : ir.Value or None
        Scores of a key that is always attended and has no value.
    """

    product: ir.Node
    index: Index
    query: ir.Value
    key: ir.Value
    scale: float = 1.0
    softcap: float = 0.0
    capped: bool = True
    attend: list[Term] = field(default_factory=list)
    masks: list[ir.Value] = field(default_factory=list)
    bias: list[ir.Value] = field(default_factory=list)
    rows: list[ir.Value] = field(default_factory=list)
    addends: list[Addend] = field(default_factory=list)
    fills: list[float] = field(default_factory=list)
    replaced: bool = False
    sink: ir.Value | None = None


class _Captured(Exception):
    def __init__(self, value: ir.Value, index: Index) -> None:
        self.value, self.index = value, index


class _Capture:
    """An interpreter that tells which element of which input a rule reads first."""

    def __init__(self, x: Interpreter, source: ir.Value) -> None:
        self.x, self.source = x, source

    def term(self, value: ir.Value, index: Index) -> Term:
        if value is self.source:
            raise _Captured(value, index)
        return self.x.term(value, index)

    def __getattr__(self, name: str) -> object:
        return getattr(self.x, name)


def source_of(x: Interpreter, node: ir.Node, value: ir.Value, index: Index) -> tuple[ir.Value, Index]:
    """Return the element of its first input that an element of a node that moves is.

    Raises
    ------
    NotFollowed
        If that can't be told.
    """
    source = node.inputs[0]
    assert source is not None
    try:
        rules.element(_Capture(x, source), node, value, index)  # type: ignore[arg-type]
    except _Captured as captured:
        return captured.value, captured.index
    raise NotFollowed(f"{describe(value)} moves elements in a way that could not be followed")


def follow(x: Interpreter, value: ir.Value, axes: Axes, index: Index) -> Scores:
    """Take the scores of a Softmax apart.

    Raises
    ------
    NotFollowed
        If they are no product of queries and keys, or something happens to them that has no place in attention.
    """
    node = value.producer()
    if node is None:
        raise NotFollowed(f"{describe(value)} is not computed from queries and keys")
    if node.op_type in PRODUCTS:
        return _product(x, node, value, index)
    if not is_standard(node):
        raise NotFollowed(f"{describe(value)} is no operator that attention scores go through")
    if node.op_type in MOVES:
        return follow(x, *_swap(source_of(x, node, value, index), axes))
    rule = _STEPS.get(node.op_type)
    if rule is None:
        raise NotFollowed(f"{describe(value)} is no operator that attention scores go through")
    scores = rule(x, node, axes, index)
    if not scores.capped and rule is not _tanh:
        raise NotFollowed(f"{describe(value)} follows a tanh of scores that is not multiplied by its bound")
    return scores


def _swap(at: tuple[ir.Value, Index], axes: Axes) -> tuple[ir.Value, Axes, Index]:
    return at[0], axes, at[1]


def _at(x: Interpreter, value: ir.Value, index: Index) -> Index:
    return rules.broadcast_index(x.shape(value), index)


def _is_score(x: Interpreter, value: ir.Value, axes: Axes, index: Index) -> Scores | NotFollowed:
    index = _at(x, value, index)
    if (value, index) in x.no_scores:
        return x.no_scores[value, index]
    try:
        return follow(x, value, axes, index)
    except NotFollowed as error:
        x.no_scores[value, index] = error
        return error


def _score_and_other(
    x: Interpreter, node: ir.Node, axes: Axes, index: Index, *, either: bool = True
) -> tuple[Scores, ir.Value]:
    """Return the scores behind one operand, and the other operand."""
    a, b = node.inputs[:2]
    assert a is not None
    assert b is not None
    first = _is_score(x, a, axes, index)
    if isinstance(first, Scores):
        return first, b
    second = _is_score(x, b, axes, index) if either else first
    if isinstance(second, Scores):
        return second, a
    constant = constant_of(a) is not None
    raise second if constant or isinstance(second, Faulty) else first


def _add(x: Interpreter, node: ir.Node, axes: Axes, index: Index) -> Scores:
    scores, other = _score_and_other(x, node, axes, index, either=node.op_type == "Add")
    term = x.term(other, _at(x, other, index))
    if node.op_type == "Sub":
        term = t.apply("Neg", term)
    added = split_added(term, axes)
    scores.attend += added.attend
    scores.fills += added.fills
    scores.masks += [other] * len(added.attend)
    # What all keys and a sink share changes no weight.
    if added.bias and (scores.sink is None or axes.k in set(t.atoms_of(term))):
        scores.addends.append(Addend(other, _at(x, other, index), tuple(added.bias), node.op_type == "Sub"))
    if axes.k in set(t.atoms_of(term)):
        scores.bias += [origin(x, part, other, index) for part in added.bias]
    elif added.bias:
        scores.rows.append(other)
    return scores


def origin(x: Interpreter, term: Term, value: ir.Value, index: Index) -> ir.Value:
    """Return what a term, a part of `value`, is elements of: an input or constant, or an addend, or `value`."""
    names = {atom.args[0] for atom in t.atoms_of(term) if atom.op == "load"}
    found = x.by_name.get(names.pop()) if len(names) == 1 else None
    given = found is not None and (found.producer() is None or constant_of(found) is not None)
    if found is not None and given and term.op in ("load", "choose"):
        return found
    waiting = [value]
    for addend in waiting:
        if len(waiting) > MOST_ADDENDS:
            break
        if x.term(addend, _at(x, addend, index)) is term:
            return addend
        node = addend.producer()
        if node is not None and node.op_type in ("Add", "Cast", "Identity"):
            waiting += [v for v in node.inputs if v is not None]
    return value


def _times(x: Interpreter, node: ir.Node, axes: Axes, index: Index) -> Scores:
    scores, other = _score_and_other(x, node, axes, index, either=node.op_type == "Mul")
    term = x.term(other, _at(x, other, index))
    factor = _number(term)
    if factor is None:
        if t.is_choice(term) or any(a.op == "load" for a in t.atoms_of(term)):
            raise Faulty(
                "multiplied",
                f"scores are multiplied by {describe(other)}: a score of 0 is not masked, it keeps a weight",
            )
        raise NotFollowed(f"scores are multiplied by {describe(other)}, which is no number")
    if scores.attend or scores.bias:
        raise NotFollowed(f"masked scores are scaled by {describe(node.outputs[0])}")
    factor = 1 / factor if node.op_type == "Div" else factor
    if scores.softcap:
        # A bound and its reciprocal are each rounded, to 8 bits in bfloat16.
        if scores.capped or not math.isclose(factor, scores.softcap, rel_tol=2**-7):
            raise NotFollowed(f"a tanh of scores over {scores.softcap:g} is scaled by {factor:g}")
        scores.capped = True
        return scores
    scores.scale *= factor
    return scores


def _number(term: Term) -> float | None:
    if term.op == "number":
        return float(term.args[0])
    fixed = t.fixed(term) if term.kind == "int" else None
    return None if fixed is None else float(fixed)


def _tanh(x: Interpreter, node: ir.Node, axes: Axes, index: Index) -> Scores:
    value = node.inputs[0]
    assert value is not None
    inner = value.producer()
    scores = follow(x, value, axes, index)
    if scores.attend or scores.bias or scores.sink is not None:
        raise NotFollowed(f"{describe(node.outputs[0])} bounds masked scores: what is filled with a bound has weight")
    # The division before the tanh is the soft cap's, what came before it is the scale's.
    divisor = None
    if inner is not None and inner.op_type in ("Div", "Mul"):
        numbers = [_number(x.term(v, _at(x, v, index))) for v in inner.inputs if v is not None and v is not value]
        divisor = next((number for number in numbers if number), None)
    if divisor is None or scores.softcap:
        raise NotFollowed(f"{describe(node.outputs[0])} is no soft cap: it isn't cap * tanh(scores / cap)")
    assert inner is not None
    scores.softcap = divisor if inner.op_type == "Div" else 1 / divisor
    scores.scale *= scores.softcap
    scores.capped = False
    return scores


def _where(x: Interpreter, node: ir.Node, axes: Axes, index: Index) -> Scores:
    condition, a, b = node.inputs[:3]
    assert condition is not None
    assert a is not None
    assert b is not None
    attend = x.term(condition, _at(x, condition, index))
    for kept, filled, holds in ((a, b, attend), (b, a, t.negate(attend))):
        fill = x.term(filled, _at(x, filled, index))
        if is_fill(fill):
            scores = follow(x, kept, axes, _at(x, kept, index))
            scores.attend.append(holds)
            scores.masks.append(condition)
            scores.fills.append(float(fill.args[0]))
            scores.replaced = True
            return scores
        if fill.op == "number":
            raise Faulty(
                "weak",
                f"{describe(node.outputs[0])} fills scores with {float(fill.args[0]):g}, which is too small to mask",
            )
    raise NotFollowed(f"{describe(node.outputs[0])} chooses between scores")


def _floor(x: Interpreter, node: ir.Node, axes: Axes, index: Index) -> Scores:
    scores, other = _score_and_other(x, node, axes, index)
    if not is_fill(x.term(other, _at(x, other, index))):
        raise NotFollowed(f"scores are bounded by {describe(other)}")
    return scores


def _concat(x: Interpreter, node: ir.Node, axes: Axes, index: Index) -> Scores:
    """Scores, and those of a sink in the last column."""
    a, *others = node.inputs
    assert a is not None
    axis = node.attributes["axis"].as_int()
    if len(others) != 1 or axis not in (-1, len(index) - 1) or others[0] is None:
        raise NotFollowed(f"{describe(node.outputs[0])} joins scores")
    scores, sink = follow(x, a, axes, index), others[0]
    if t.fixed(x.shape(sink)[-1]) != 1 or isinstance(_is_score(x, sink, axes, index), Scores):
        raise NotFollowed(f"{describe(node.outputs[0])} joins scores of several products")
    scores.sink = sink
    # What all keys share makes a difference beside a sink that doesn't.
    scores.bias += scores.rows
    return scores


_STEPS = {
    "Add": _add,
    "Sub": _add,
    "Mul": _times,
    "Div": _times,
    "Tanh": _tanh,
    "Where": _where,
    "Max": _floor,
    "Concat": _concat,
}


def _product(x: Interpreter, node: ir.Node, value: ir.Value, index: Index) -> Scores:
    a, b = node.inputs[:2]
    assert a is not None
    assert b is not None
    if any(_is_weight(operand) for operand in (a, b)):
        raise NoAttention(f"{describe(value)} multiplies by a weight, so it is no product of queries and keys")
    if node.op_type == "Gemm" and len(node.inputs) > 2:
        raise NotFollowed(f"{describe(value)} adds a third input")
    return Scores(node, index, a, b)


def _is_weight(value: ir.Value) -> bool:
    """Return whether a value depends on constants alone."""
    seen: set[ir.Value] = set()
    waiting = [value]
    while waiting and len(seen) < 16:
        current = waiting.pop()
        if current in seen or constant_of(current) is not None:
            continue
        seen.add(current)
        node = current.producer()
        if node is None:
            return False
        waiting += [v for v in node.inputs if v is not None]
    return not waiting
