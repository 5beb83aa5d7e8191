"""What each ONNX operator does to indices and shapes: two tables, from operator to rule.

A rule of `TERMS` gives the element of the node's output at an index, from elements of its inputs; None leaves the
value opaque. A rule of `SHAPES` gives the lengths of an output.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes  # noqa: F401 - registers bfloat16 with numpy
import numpy as np
import onnx_ir as ir

from . import terms as t
from .terms import Term
from .values import Index, NotFollowed, Reader, constant, describe, is_standard, kind_of

__all__ = ["SHAPES", "TERMS", "element", "shape_rule"]

TermRule = Callable[[Reader, ir.Node, Index], Term | None]
ShapeRule = Callable[[Reader, ir.Node, ir.Value], Index]
TERMS: dict[str, TermRule] = {}
SHAPES: dict[str, ShapeRule] = {}


def _term(*operators: str) -> Callable[[TermRule], TermRule]:
    def register(rule: TermRule) -> TermRule:
        TERMS.update(dict.fromkeys(operators, rule))
        return rule

    return register


def _shape(*operators: str) -> Callable[[ShapeRule], ShapeRule]:
    def register(rule: ShapeRule) -> ShapeRule:
        SHAPES.update(dict.fromkeys(operators, rule))
        return rule

    return register


def _input(node: ir.Node, place: int) -> ir.Value:
    value = optional(node, place)
    if value is None:
        raise NotFollowed(f"{node.op_type} lacks input {place}")
    return value


def optional(node: ir.Node, place: int) -> ir.Value | None:
    """Return an input that may be left out."""
    return node.inputs[place] if place < len(node.inputs) else None


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """Return the value of an attribute."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def _int(node: ir.Node, name: str, default: int = 0) -> int:
    value = attribute(node, name, default)
    assert isinstance(value, int)
    return value


def _axes(x: Reader, node: ir.Node, place: int, rank: int) -> list[int] | None:
    """Return the axes of Squeeze, Unsqueeze or a reduction, from its input or (before opset 13) its attribute."""
    given = optional(node, place)
    axes = x.numbers(given) if given is not None else attribute(node, "axes")
    return None if axes is None else sorted(axis % rank for axis in axes)


def broadcast_index(shape: Index, index: Index) -> Index:
    """Return where an operand of `shape` is read for an element of the result at `index`."""
    tail = index[len(index) - len(shape) :]
    return tuple(t.ZERO if t.fixed(n) == 1 else i for n, i in zip(shape, tail, strict=True))


def broadcast_shape(shapes: Sequence[Index]) -> Index:
    """Return the shape of an elementwise result: a length of 1 gives way."""
    rank = max(map(len, shapes))
    padded = [(t.ONE,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(min(lengths, key=_weakness) for lengths in zip(*padded, strict=True))


def _weakness(length: Term) -> tuple[bool, bool, int]:
    """Order lengths that are equal when the graph runs, but for 1, which gives way: a number first, then a symbol."""
    return t.fixed(length) == 1, t.fixed(length) is None, length.size


def _operands(x: Reader, node: ir.Node, index: Index) -> list[Term]:
    return [x.term(v, broadcast_index(x.shape(v), index)) for v in node.inputs if v is not None]


# Elementwise operators

_INTEGER: dict[str, Callable[[Term, Term], Term]] = {
    "Add": t.add,
    "Sub": t.sub,
    "Mul": t.mul,
    "Div": t.floordiv,
    "Mod": t.remainder,
    "Min": t.least,
    "Max": t.most,
}
_UNARY = ("Sqrt", "Reciprocal", "Exp", "Log", "Tanh", "Floor", "Ceil", "Round", "Sin", "Cos", "Erf", "Sigmoid", "Relu")


@_term(*_INTEGER, "Pow")
def _arithmetic(x: Reader, node: ir.Node, index: Index) -> Term | None:
    operands = _operands(x, node, index)
    if all(operand.kind == "int" for operand in operands):
        rule = _INTEGER.get(node.op_type)
        # Towards zero and floor are the same for what can't be negative; a negative divisor is left alone.
        if rule is None or (node.op_type in ("Div", "Mod") and not _divides(operands)):
            return None
        return functools.reduce(rule, operands)
    if any(operand.kind != "float" for operand in operands):
        return None
    return functools.reduce(lambda a, b: t.apply(node.op_type, a, b), operands)


def _divides(operands: list[Term]) -> bool:
    return t.at_most(t.ONE, operands[1]) and (t.at_most(t.ZERO, operands[0]) or operands[0].op == "load")


@_term(*_UNARY)
def _unary(x: Reader, node: ir.Node, index: Index) -> Term | None:
    return t.apply(node.op_type, *_operands(x, node, index))


@_term("Neg")
def _neg(x: Reader, node: ir.Node, index: Index) -> Term | None:
    (operand,) = _operands(x, node, index)
    return t.neg(operand) if operand.kind == "int" else t.apply("Neg", operand)


@_term("Abs")
def _abs(x: Reader, node: ir.Node, index: Index) -> Term | None:
    (operand,) = _operands(x, node, index)
    return t.absolute(operand) if operand.kind == "int" else t.apply("Abs", operand)


@_term("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def _relation(x: Reader, node: ir.Node, index: Index) -> Term | None:
    a, b = _operands(x, node, index)
    return t.holds(node.op_type, a, b)


@_term("And", "BitwiseAnd")
def _and(x: Reader, node: ir.Node, index: Index) -> Term | None:
    operands = _operands(x, node, index)
    return t.both(*operands) if all(o.kind == "bool" for o in operands) else None


@_term("Or", "BitwiseOr")
def _or(x: Reader, node: ir.Node, index: Index) -> Term | None:
    operands = _operands(x, node, index)
    return t.either(*operands) if all(o.kind == "bool" for o in operands) else None


@_term("Xor", "BitwiseXor")
def _xor(x: Reader, node: ir.Node, index: Index) -> Term | None:
    a, b = _operands(x, node, index)
    return t.negate(t.equal(a, b)) if a.kind == "bool" and b.kind == "bool" else None


@_term("Not", "BitwiseNot")
def _not(x: Reader, node: ir.Node, index: Index) -> Term | None:
    (operand,) = _operands(x, node, index)
    return t.negate(operand) if operand.kind == "bool" else None


@_term("Where")
def _where(x: Reader, node: ir.Node, index: Index) -> Term | None:
    return t.choose(*_operands(x, node, index))


@_term("Clip")
def _clip(x: Reader, node: ir.Node, index: Index) -> Term | None:
    value = x.term(_input(node, 0), index)
    for place, name in ((1, "Max"), (2, "Min")):
        if (bound := optional(node, place)) is not None:
            limit = x.term(bound, ())
            value = _INTEGER[name](value, limit) if value.kind == "int" else t.apply(name, value, limit)
    return value


@_term("Cast", "CastLike")
def _cast(x: Reader, node: ir.Node, index: Index) -> Term | None:
    operand = x.term(_input(node, 0), index)
    if node.op_type == "Cast":
        dtype = ir.DataType(_int(node, "to"))
    else:
        like = _input(node, 1).dtype
        if like is None:
            return None
        dtype = like
    if dtype == ir.DataType.BOOL:
        return t.to_bool(operand)
    if dtype.is_floating_point():
        return t.to_float(operand, dtype.numpy())
    return t.to_int(operand) if dtype.is_integer() else None


@_term("Identity", "Dropout")
def _same(x: Reader, node: ir.Node, index: Index) -> Term | None:
    return x.term(_input(node, 0), index)


@_term("IsNaN", "IsInf")
def _is_special(x: Reader, node: ir.Node, index: Index) -> Term | None:
    operand = x.term(_input(node, 0), index)
    if not t.is_choice(operand):
        return None
    test = np.isnan if node.op_type == "IsNaN" else np.isinf

    def visit(term: Term) -> Term:
        if term.op == "choose":
            return t.choose(term.args[0], visit(term.args[1]), visit(term.args[2]))
        return t.TRUE if test(term.args[0]) else t.FALSE

    return visit(operand)


@_shape(
    *_INTEGER,
    *_UNARY,
    "Pow",
    "Neg",
    "Abs",
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
    "And",
    "Or",
    "Xor",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Not",
    "BitwiseNot",
    "Where",
    "IsNaN",
    "IsInf",
)
def _elementwise_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    return broadcast_shape([x.shape(v) for v in node.inputs if v is not None])


@_shape(
    "Cast",
    "CastLike",
    "Identity",
    "Dropout",
    "Clip",
    "Softmax",
    "LayerNormalization",
    "RMSNormalization",
    "RotaryEmbedding",
    "CumSum",
    "Trilu",
    "Gelu",
    "Swish",
    "Sign",
    "Elu",
    "LeakyRelu",
    "HardSigmoid",
    "HardSwish",
    "Mish",
    "Softplus",
    "Softsign",
    "LogSoftmax",
    "EyeLike",
)
def _same_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    return x.shape(_input(node, 0))


# Shapes and constants


@_term("Shape")
def _shape_term(x: Reader, node: ir.Node, index: Index) -> Term | None:
    lengths = _lengths(x, node)
    place = t.fixed(index[0])
    return None if place is None else lengths[place]


def _lengths(x: Reader, node: ir.Node) -> Index:
    shape = x.shape(_input(node, 0))
    return shape[_int(node, "start") : _int(node, "end", len(shape))]


@_shape("Shape")
def _shape_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    return (t.integer(len(_lengths(x, node))),)


@_term("Size")
def _size(x: Reader, node: ir.Node, index: Index) -> Term | None:
    return functools.reduce(t.mul, x.shape(_input(node, 0)), t.ONE)


@_shape("Size")
def _scalar_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    return ()


@_term("Range")
def _range(x: Reader, node: ir.Node, index: Index) -> Term | None:
    start, _, step = (x.term(_input(node, place), ()) for place in range(3))
    if start.kind != "int" or step.kind != "int":
        return None
    return t.add(start, t.mul(step, index[0]))


@_shape("Range")
def _range_shape(x: Reader, node: ir.Node, value: ir.Value) -> Index:
    start, limit, step = (x.term(_input(node, place), ()) for place in range(3))
    if start.kind != "int" or t.fixed(step) != 1:
        raise NotFollowed("a Range that doesn't count by one")
    return (t.sub(limit, start),)


@_term("ConstantOfShape")
def _fill(x: Reader, node: ir.Node, index: Index) -> Term | None:
    value = attribute(node, "value")
    return t.number(np.float32(0)) if value is None else constant(value.numpy().reshape(-1)[0])


def _numpy(value: ir.Value) -> np.dtype[Any]:
    """Return the numpy type of a float value."""
    return np.dtype(np.float32) if value.dtype is None else value.dtype.numpy()


@_shape("ConstantOfShape")
def _fill_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    return tuple(x.vector(_input(node, 0)))


@_term("EyeLike")
def _eye(x: Reader, node: ir.Node, index: Index) -> Term | None:
    on = t.equal(t.sub(index[1], index[0]), t.integer(_int(node, "k")))
    dtype = ir.DataType(_int(node, "dtype", int(ir.DataType.FLOAT)))
    if dtype == ir.DataType.BOOL:
        return on
    return t.to_float(on, dtype.numpy()) if dtype.is_floating_point() else t.choose(on, t.ONE, t.ZERO)


@_shape("Gemm")
def _gemm_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    a, b = x.shape(_input(node, 0)), x.shape(_input(node, 1))
    return a[1 if _int(node, "transA") else 0], b[0 if _int(node, "transB") else 1]


@_term("Trilu")
def _trilu(x: Reader, node: ir.Node, index: Index) -> Term | None:
    value = x.term(_input(node, 0), index)
    shift = x.term(_input(node, 1), ()) if optional(node, 1) is not None else t.ZERO
    distance = t.sub(t.sub(index[-1], index[-2]), shift)
    kept = t.at_most_zero(t.neg(distance) if _int(node, "upper", 1) else distance)
    if value.kind == "bool":
        return t.both(kept, value)
    zero = t.ZERO if value.kind == "int" else t.number(_numpy(_input(node, 0)).type(0))
    return t.choose(kept, value, zero)


@_term("CumSum")
def _cumsum(x: Reader, node: ir.Node, index: Index) -> Term | None:
    """Of one value everywhere it is a range."""
    source = _input(node, 0)
    (axis,) = x.numbers(_input(node, 1))
    place = axis % len(index)
    free = t.symbol("any position", t.ZERO)
    element = x.term(source, (*index[:place], free, *index[place + 1 :]))
    if element.kind != "int" or free in set(t.atoms_of(element)):
        return None
    count = index[place]
    if _int(node, "reverse"):
        count = t.sub(t.sub(x.shape(source)[place], t.ONE), count)
    return t.mul(element, count if _int(node, "exclusive") else t.add(count, t.ONE))


# Moving elements


@_term("Unsqueeze")
def _unsqueeze(x: Reader, node: ir.Node, index: Index) -> Term | None:
    axes = _axes(x, node, 1, len(index)) or []
    return x.term(_input(node, 0), tuple(i for axis, i in enumerate(index) if axis not in axes))


@_shape("Unsqueeze")
def _unsqueeze_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    shape = x.shape(_input(node, 0))
    given = optional(node, 1)
    axes = x.numbers(given) if given is not None else list(attribute(node, "axes") or ())
    rank = len(shape) + len(axes)
    new, rest = {axis % rank for axis in axes}, iter(shape)
    return tuple(t.ONE if axis in new else next(rest) for axis in range(rank))


def _squeezed(x: Reader, node: ir.Node) -> list[int]:
    shape = x.shape(_input(node, 0))
    axes = _axes(x, node, 1, len(shape))
    return [axis for axis, n in enumerate(shape) if t.fixed(n) == 1] if axes is None else axes


@_term("Squeeze")
def _squeeze(x: Reader, node: ir.Node, index: Index) -> Term | None:
    source = _input(node, 0)
    axes, rest = _squeezed(x, node), iter(index)
    return x.term(source, tuple(t.ZERO if axis in axes else next(rest) for axis in range(len(x.shape(source)))))


@_shape("Squeeze")
def _squeeze_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    axes = _squeezed(x, node)
    return tuple(n for axis, n in enumerate(x.shape(_input(node, 0))) if axis not in axes)


@_term("Expand")
def _expand(x: Reader, node: ir.Node, index: Index) -> Term | None:
    source = _input(node, 0)
    return x.term(source, broadcast_index(x.shape(source), index))


@_shape("Expand")
def _expand_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    return broadcast_shape([x.shape(_input(node, 0)), tuple(x.vector(_input(node, 1)))])


def _permutation(node: ir.Node, rank: int) -> list[int]:
    return list(attribute(node, "perm") or range(rank)[::-1])


@_term("Transpose")
def _transpose(x: Reader, node: ir.Node, index: Index) -> Term | None:
    permutation = _permutation(node, len(index))
    source = dict(zip(permutation, index, strict=True))
    return x.term(_input(node, 0), tuple(source[axis] for axis in range(len(index))))


@_shape("Transpose")
def _transpose_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    shape = x.shape(_input(node, 0))
    return tuple(shape[axis] for axis in _permutation(node, len(shape)))


def flat(index: Index, shape: Index) -> Term:
    """Return the row-major position of an index."""
    position = t.ZERO
    for i, n in zip(index, shape, strict=True):
        position = t.add(t.mul(position, n), i)
    return position


def unflat(position: Term, shape: Index) -> Index:
    """Return the index at a row-major position."""
    index: list[Term] = []
    for place, n in reversed(list(enumerate(shape))):
        index.append(t.remainder(position, n) if place else position)
        position = t.floordiv(position, n)
    return tuple(reversed(index))


def moved(index: Index, shape: Index, source: Index) -> Index:
    """Return the index into `source` of the element at `index` of its reshape to `shape`."""
    # Leading axes of equal length stay as they are: what is left is simpler.
    same = 0
    while same < min(len(shape), len(source)) and shape[same] is source[same]:
        same += 1
    return index[:same] + unflat(flat(index[same:], shape[same:]), source[same:])


@_term("Reshape", "Flatten")
def _reshape(x: Reader, node: ir.Node, index: Index) -> Term | None:
    source = _input(node, 0)
    return x.term(source, moved(index, x.shape(node.outputs[0]), x.shape(source)))


@_shape("Reshape")
def _reshape_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    source, wanted = x.shape(_input(node, 0)), x.vector(_input(node, 1))
    if not _int(node, "allowzero"):
        wanted = [source[axis] if t.fixed(n) == 0 else n for axis, n in enumerate(wanted)]
    free = [axis for axis, n in enumerate(wanted) if t.fixed(n) == -1]
    if free:
        known = functools.reduce(t.mul, (n for axis, n in enumerate(wanted) if axis != free[0]), t.ONE)
        rest = t.exact_quotient(functools.reduce(t.mul, source, t.ONE), known)
        if rest is None:
            raise NotFollowed(f"the length -1 of {describe(node.outputs[0])} can't be computed")
        wanted[free[0]] = rest
    return tuple(wanted)


@_shape("Flatten")
def _flatten_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    shape = x.shape(_input(node, 0))
    axis = _int(node, "axis", 1) % (len(shape) + 1)
    return tuple(functools.reduce(t.mul, part, t.ONE) for part in (shape[:axis], shape[axis:]))


@_term("Concat")
def _concat(x: Reader, node: ir.Node, index: Index) -> Term | None:
    axis, pieces = _int(node, "axis") % len(index), [v for v in node.inputs if v is not None]
    place = index[axis]
    starts, start = [], t.ZERO
    for piece in pieces:
        starts.append(start)
        start = t.add(start, x.shape(piece)[axis])

    def element(n: int) -> Term:
        return x.term(pieces[n], (*index[:axis], t.sub(place, starts[n]), *index[axis + 1 :]))

    def from_piece(n: int) -> Term:
        if n == len(pieces) - 1:
            return element(n)
        before = t.at_most_zero(t.sub(t.add(place, t.ONE), starts[n + 1]))
        if before is t.TRUE:
            return element(n)
        return from_piece(n + 1) if before is t.FALSE else t.choose(before, element(n), from_piece(n + 1))

    return from_piece(0)


@_shape("Concat")
def _concat_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    shapes = [x.shape(v) for v in node.inputs if v is not None]
    axis = _int(node, "axis") % len(shapes[0])
    joined = functools.reduce(t.add, (shape[axis] for shape in shapes))
    return (*shapes[0][:axis], joined, *shapes[0][axis + 1 :])


# Slice reads this and more as the end, its negative and less as the start.
FAR = 1 << 30


def slices(x: Reader, node: ir.Node) -> dict[int, tuple[Term, Term, int]]:
    """Return, by axis, the start, the length and the step of a Slice.

    Raises
    ------
    NotFollowed
        If they can't be told.
    """
    shape = x.shape(_input(node, 0))
    if len(node.inputs) > 1:
        starts, ends = x.vector(_input(node, 1)), x.vector(_input(node, 2))
        axes = x.numbers(_input(node, 3)) if optional(node, 3) is not None else range(len(starts))
        steps = x.numbers(_input(node, 4)) if optional(node, 4) is not None else [1] * len(starts)
    else:
        starts, ends = ([t.integer(n) for n in attribute(node, name)] for name in ("starts", "ends"))
        axes, steps = attribute(node, "axes") or range(len(starts)), [1] * len(starts)
    found = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis, length = axis % len(shape), shape[axis % len(shape)]
        if step not in (1, -1):
            raise NotFollowed(f"{describe(node.outputs[0])} takes every {step}th element")
        if step == -1:
            if _fixed(start, -1) not in (-1, FAR) or _fixed(end, 0) != -FAR:
                raise NotFollowed(f"{describe(node.outputs[0])} runs backwards from or to the middle")
            found[axis] = (t.sub(length, t.ONE), length, -1)
            continue
        first, last = _clamped(start, length), _clamped(end, length)
        found[axis] = (first, t.sub(last, first), 1)
    return found


def _fixed(place: Term, default: int) -> int:
    """Return a bound of a Slice as a number, no farther than FAR."""
    number = t.fixed(place)
    return default - 1 if number is None else max(-FAR, min(FAR, number))


def _clamped(place: Term, length: Term) -> Term:
    number = t.fixed(place)
    if number is not None and abs(number) >= FAR:
        return length if number > 0 else t.ZERO
    if number is not None and number < 0:
        place = t.add(length, place)
        return place if t.at_most(t.ZERO, place) else t.most(place, t.ZERO)
    return t.least(place, length)


@_term("Slice")
def _slice(x: Reader, node: ir.Node, index: Index) -> Term | None:
    cut = slices(x, node)
    source = [
        (t.add(cut[axis][0], i) if cut[axis][2] > 0 else t.sub(cut[axis][0], i)) if axis in cut else i
        for axis, i in enumerate(index)
    ]
    return x.term(_input(node, 0), tuple(source))


@_shape("Slice")
def _slice_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    cut = slices(x, node)
    return tuple(cut[axis][1] if axis in cut else n for axis, n in enumerate(x.shape(_input(node, 0))))


def _split_lengths(x: Reader, node: ir.Node) -> tuple[int, list[Term]]:
    shape = x.shape(_input(node, 0))
    axis = _int(node, "axis") % len(shape)
    if optional(node, 1) is not None:
        return axis, x.vector(_input(node, 1))
    if (given := attribute(node, "split")) is not None:
        return axis, [t.integer(n) for n in given]
    length = t.fixed(shape[axis])
    if length is None:
        raise NotFollowed(f"{describe(node.outputs[0])} is split into parts of unknown length")
    # The last part is the smaller one.
    part = -(-length // len(node.outputs))
    return axis, [t.integer(min(part, length - part * n)) for n in range(len(node.outputs))]


def _place(value: ir.Value) -> int:
    place = value.index()
    assert place is not None
    return place


def _split(x: Reader, node: ir.Node, value: ir.Value, index: Index) -> Term | None:
    axis, lengths = _split_lengths(x, node)
    start = functools.reduce(t.add, lengths[: _place(value)], t.ZERO)
    return x.term(_input(node, 0), (*index[:axis], t.add(start, index[axis]), *index[axis + 1 :]))


@_shape("Split")
def _split_shape(x: Reader, node: ir.Node, value: ir.Value) -> Index:
    axis, lengths = _split_lengths(x, node)
    shape = x.shape(_input(node, 0))
    return (*shape[:axis], lengths[_place(value)], *shape[axis + 1 :])


def element(x: Reader, node: ir.Node, value: ir.Value, index: Index) -> Term | None:
    """Return the element of a node's output at an index, or None if no rule tells it."""
    if node.op_type == "Split":
        return _split(x, node, value, index)
    rule = TERMS.get(node.op_type)
    return rule(x, node, index) if rule is not None and value is node.outputs[0] else None


def _pads(x: Reader, node: ir.Node) -> tuple[list[Term], list[Term]]:
    """Return how much a Pad puts before and after each axis."""
    rank = len(x.shape(_input(node, 0)))
    pads = x.vector(_input(node, 1))
    axes = [axis % rank for axis in x.numbers(_input(node, 3))] if optional(node, 3) is not None else list(range(rank))
    before, after = [t.ZERO] * rank, [t.ZERO] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    return before, after


@_term("Pad")
def _pad(x: Reader, node: ir.Node, index: Index) -> Term | None:
    if attribute(node, "mode", "constant") != "constant":
        return None
    source = _input(node, 0)
    shape, (before, _) = x.shape(source), _pads(x, node)
    moved_back = tuple(t.sub(i, n) for i, n in zip(index, before, strict=True))
    inside = [t.at_most_zero(t.neg(i)) for i in moved_back]
    inside += [t.at_most_zero(t.sub(t.add(i, t.ONE), n)) for i, n in zip(moved_back, shape, strict=True)]
    value = x.term(source, moved_back)
    if optional(node, 2) is not None:
        fill = x.term(_input(node, 2), (t.ZERO,) * len(x.shape(_input(node, 2))))
    else:
        fill = {"bool": t.FALSE, "int": t.ZERO}.get(value.kind) or t.to_float(t.ZERO, _numpy(_input(node, 0)))
    return t.choose(t.both(*inside), value, fill)


@_shape("Pad")
def _pad_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    before, after = _pads(x, node)
    padded = zip(x.shape(_input(node, 0)), before, after, strict=True)
    return tuple(t.add(n, t.add(b, a)) for n, b, a in padded)


@_term("Tile")
def _tile(x: Reader, node: ir.Node, index: Index) -> Term | None:
    source = _input(node, 0)
    shape = x.shape(source)
    return x.term(
        source, tuple(t.ZERO if t.fixed(n) == 1 else t.remainder(i, n) for i, n in zip(index, shape, strict=True))
    )


@_shape("Tile")
def _tile_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    return tuple(t.mul(n, r) for n, r in zip(x.shape(_input(node, 0)), x.vector(_input(node, 1)), strict=True))


def _counted(place: Term, length: Term) -> Term:
    """Return a place that may count from the end."""
    if t.at_most(t.ZERO, place) or place.op == "load":
        return place
    if t.at_most(place, t.integer(-1)):
        return t.add(place, length)
    return t.choose(t.at_most_zero(t.add(place, t.ONE)), t.add(place, length), place)


@_term("Gather")
def _gather(x: Reader, node: ir.Node, index: Index) -> Term | None:
    source, places = _input(node, 0), _input(node, 1)
    shape, rank = x.shape(source), len(x.shape(places))
    axis = _int(node, "axis") % len(shape)
    place = x.term(places, index[axis : axis + rank])
    if place.kind != "int":
        return None
    return x.term(source, (*index[:axis], _counted(place, shape[axis]), *index[axis + rank :]))


@_shape("Gather")
def _gather_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    shape = x.shape(_input(node, 0))
    axis = _int(node, "axis") % len(shape)
    return (*shape[:axis], *x.shape(_input(node, 1)), *shape[axis + 1 :])


@_term("GatherElements")
def _gather_elements(x: Reader, node: ir.Node, index: Index) -> Term | None:
    source = _input(node, 0)
    axis = _int(node, "axis") % len(index)
    place = x.term(_input(node, 1), index)
    if place.kind != "int":
        return None
    return x.term(source, (*index[:axis], _counted(place, x.shape(source)[axis]), *index[axis + 1 :]))


@_shape("GatherElements")
def _gather_elements_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    return x.shape(_input(node, 1))


@_term("GatherND")
def _gather_nd(x: Reader, node: ir.Node, index: Index) -> Term | None:
    source, places = _input(node, 0), _input(node, 1)
    shape, batch = x.shape(source), _int(node, "batch_dims")
    places_shape = x.shape(places)
    depth, outer = t.fixed(places_shape[-1]), len(places_shape) - 1
    if depth is None:
        return None
    found = [x.term(places, (*index[:outer], t.integer(n))) for n in range(depth)]
    counted = [_counted(place, shape[batch + n]) for n, place in enumerate(found)]
    return x.term(source, (*index[:batch], *counted, *index[outer:]))


@_shape("GatherND")
def _gather_nd_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    shape, places, batch = x.shape(_input(node, 0)), x.shape(_input(node, 1)), _int(node, "batch_dims")
    depth = t.fixed(places[-1])
    if depth is None:
        raise NotFollowed("a GatherND of unknown depth")
    return (*places[:-1], *shape[batch + depth :])


# Products: their elements are opaque, their shapes are not


@_shape("MatMul")
def _matmul_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    a, b = x.shape(_input(node, 0)), x.shape(_input(node, 1))
    if len(a) < 2 or len(b) < 2:
        raise NotFollowed("a product with a vector")
    if _int(node, "transA"):
        a = (*a[:-2], a[-1], a[-2])
    if _int(node, "transB"):
        b = (*b[:-2], b[-1], b[-2])
    return (*broadcast_shape([a[:-2], b[:-2]]), a[-2], b[-1])


@_term("If")
def _if(x: Reader, node: ir.Node, index: Index) -> Term | None:
    condition = x.term(_input(node, 0), x.shape(_input(node, 0)) and (t.ZERO,))
    if condition not in (t.TRUE, t.FALSE):
        return None
    branch = attribute(node, "then_branch" if condition is t.TRUE else "else_branch")
    assert isinstance(branch, ir.Graph)
    return x.term(branch.outputs[0], index) if len(branch.outputs) == 1 else None


@_term("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd")
def _reduce(x: Reader, node: ir.Node, index: Index) -> Term | None:
    """Over axes of one element nothing is reduced."""
    source = _input(node, 0)
    shape = x.shape(source)
    axes = _axes(x, node, 1, len(shape))
    if axes is None or any(t.fixed(shape[axis]) != 1 for axis in axes) or kind_of(source) is None:
        return None
    if _int(node, "keepdims", 1):
        return x.term(source, index)
    rest = iter(index)
    return x.term(source, tuple(t.ZERO if axis in axes else next(rest) for axis in range(len(shape))))


@_shape("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd")
def _reduce_shape(x: Reader, node: ir.Node, _: ir.Value) -> Index:
    shape = x.shape(_input(node, 0))
    axes = _axes(x, node, 1, len(shape))
    axes = list(range(len(shape))) if axes is None else axes
    if _int(node, "keepdims", 1):
        return tuple(t.ONE if axis in axes else n for axis, n in enumerate(shape))
    return tuple(n for axis, n in enumerate(shape) if axis not in axes)


def shape_rule(node: ir.Node) -> ShapeRule | None:
    """Return the rule for the lengths of a node's outputs, if there is one."""
    if node.domain == "com.microsoft":
        return FUSED_SHAPES.get(node.op_type)
    return SHAPES.get(node.op_type) if is_standard(node) else None


def _embedded_shape(x: Reader, node: ir.Node, value: ir.Value) -> Index:
    """Token ids [B, S] and a table of words [V, E] give [B, S, E], and the number of tokens of each row [B]."""
    if value is node.outputs[1]:
        return x.shape(_input(node, 0))[:1]
    return (*x.shape(_input(node, 0)), x.shape(_input(node, 2))[1])


# Operators of ONNX Runtime, which shape inference doesn't know.
FUSED_SHAPES: dict[str, ShapeRule] = {
    **dict.fromkeys(("BiasGelu", "FastGelu", "Gelu", "QuickGelu"), _same_shape),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _same_shape),
    "EmbedLayerNormalization": _embedded_shape,
    "FusedMatMul": _matmul_shape,
}
