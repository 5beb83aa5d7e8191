"""Which operators commute with picking tokens, and what they are on the tokens: a table from operator to rule.

A rule gets the output's roles, pulls the inputs with the roles that they must have for it, and writes the operator on
packed values; None says that it does not commute. Everything a rule relies on is in the operator's own definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir

from ..lowering.canonical import is_site
from ..symbolic import rules as index_rules
from ..symbolic import terms as t
from ..symbolic.rules import attribute, optional
from ..symbolic.terms import Term
from ..symbolic.values import constant_of, is_standard
from .packer import Packed, Packer, Roles

__all__ = ["pack_node"]

Rule = Callable[[Packer, ir.Node, ir.Value, Roles], "Packed | None"]
RULES: dict[str, Rule] = {}

ELEMENTWISE = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Min", "Max", "Sum", "Mean", "PRelu"),
    *("And", "Or", "Xor", "Not", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Where"),
    *("Abs", "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Erf", "Tanh", "Sin", "Cos", "Floor", "Ceil", "Round", "Sign"),
    *("Sigmoid", "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Gelu", "Softplus", "Softsign", "HardSigmoid"),
    *("HardSwish", "Mish", "Swish", "ThresholdedRelu", "Clip", "Cast", "Identity", "Dropout", "IsNaN", "IsInf"),
    # ONNX Runtime's own.
    *("FastGelu", "QuickGelu", "BiasGelu"),
)
# Their first inputs are tokens alike; the others are weights of the last axis.
NORMALIZATIONS = {
    "LayerNormalization": 1,
    "RMSNormalization": 1,
    "SimplifiedLayerNormalization": 1,
    "SkipLayerNormalization": 2,
    "SkipSimplifiedLayerNormalization": 2,
}
MOVES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"),
    *("ReduceLogSum", "ReduceLogSumExp"),
)


def _rule(*operators: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, rule))
        return rule

    return register


def pack_node(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    """Return the packed form of a node's output, or None if the node does not commute with picking tokens."""
    if is_site(node) or (not is_standard(node) and node.domain != "com.microsoft"):
        return None
    rule = RULES.get(node.op_type)
    if rule is None or any(
        attr.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for attr in node.attributes.values()
    ):
        return None
    return rule(p, node, value, roles)


def _again(
    p: Packer,
    node: ir.Node,
    inputs: Sequence[ir.Value | None],
    output: ir.Value,
    **changed: ir.Attr | int | list[int] | None,
) -> ir.Value:
    """Write the node once more on other inputs; an attribute of None is left out."""
    attributes = {name: attr for name, attr in node.attributes.items() if name not in changed}
    new = {name: ir.convenience.convert_attribute(name, v) for name, v in changed.items() if v is not None}
    made = ir.Node(
        node.domain, node.op_type, inputs, [*attributes.values(), *new.values()], num_outputs=len(node.outputs)
    )
    made.metadata_props.update(node.metadata_props)
    p.build.add(made)
    for old, fresh in zip(node.outputs, made.outputs, strict=True):
        fresh.type = None if old.dtype is None else ir.TensorType(old.dtype)
    place = output.index()
    assert place is not None
    return made.outputs[place]


def _others(rank: int, roles: Roles, axis: int) -> int:
    """Return an axis that is none of the tokens', counted from the end of the packed value."""
    return -sum(1 for other in range(axis, rank) if other not in roles.axes)


def _rest(p: Packer, value: ir.Value, roles: Roles) -> tuple[Term, ...]:
    return tuple(n for axis, n in enumerate(p.shape(value)) if axis not in roles.axes)


def _result(value: ir.Value, rest: tuple[Term, ...], *packed: Packed) -> Packed:
    return Packed(value, rest, any(one.by_token for one in packed), any(one.inside for one in packed))


@_rule(*ELEMENTWISE)
def _elementwise(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    rank, rest = len(p.shape(value)), _rest(p, value, roles)
    packed = [None if v is None else p.pull(v, roles.shifted(rank - len(p.shape(v)))) for v in node.inputs]
    inputs = [None if one is None else p.aligned(one, len(rest)) for one in packed]
    made = _again(p, node, inputs, value)
    return _result(made, rest, *(one for one in packed if one is not None))


@_rule(*NORMALIZATIONS)
def _normalization(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    rank = len(p.shape(value))
    axis = attribute(node, "axis", -1) % rank
    if any(role >= axis for role in roles.axes) or value.index() != 0:
        return None
    number = NORMALIZATIONS[node.op_type]
    if number == 2 and (rank != 3 or roles != Roles(0, 1)):
        return None
    packed = [p.pull(v, roles) for v in node.inputs[:number] if v is not None]
    changed = {"axis": axis - rank} if number == 1 else {}
    made = _again(p, node, [*(one.value for one in packed), *node.inputs[number:]], value, **changed)
    return _result(made, _rest(p, value, roles), *packed)


@_rule("Softmax", "LogSoftmax", "Hardmax")
def _softmax(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    rank = len(p.shape(value))
    axis = attribute(node, "axis", -1) % rank
    if axis in roles.axes or p.x.graph.opset_imports.get("", 0) < 13:
        return None
    assert node.inputs[0] is not None
    packed = p.pull(node.inputs[0], roles)
    return _result(_again(p, node, [packed.value], value, axis=_others(rank, roles, axis)), packed.rest, packed)


@_rule("MatMul")
def _matmul(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    a, b = node.inputs
    assert a is not None
    assert b is not None
    rank, a_rank, b_rank = len(p.shape(value)), len(p.shape(a)), len(p.shape(b))
    if min(a_rank, b_rank) < 2 or any(axis == rank - 1 for axis in roles.axes):
        return None
    a_roles, b_roles = roles.shifted(rank - a_rank), roles.shifted(rank - b_rank)
    if any(axis == rank - 2 for axis in roles.axes):
        # Rows of tokens times weights that are the same for all.
        b_shape = p.shape(b)
        if any(t.fixed(n) != 1 for n in b_shape[:-2]) or rank - 2 != max(roles.axes) or rank != a_rank:
            return None
        if b_rank > 2 and [*range(rank - 1)] != sorted(roles.axes):
            return None
        packed = p.pull(a, a_roles)
        if not packed.by_token:
            return None
        if b_rank > 2:
            b = p.build.op("Squeeze", b, p.build.ints(*range(b_rank - 2)))
        # [T, ..., E]: the axes between, if any, are before the tokens in the source and after them here.
        return _result(_again(p, node, [packed.value, b], value), _rest(p, value, roles), packed)
    # One product for each token.
    left, right = p.pull(a, a_roles), p.pull(b, b_roles)
    others = rank - len(roles.axes)
    made = _again(p, node, [p.aligned(left, others), p.aligned(right, others)], value)
    return _result(made, _rest(p, value, roles), left, right)


@_rule("Gemm")
def _gemm(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    a, b, c = node.inputs[0], node.inputs[1], optional(node, 2)
    assert a is not None
    assert b is not None
    if roles != Roles(0, 0) or attribute(node, "transA", 0) or p.shape(b)[0] is p.shape(value)[0]:
        return None
    if c is not None and len(p.shape(c)) == 2 and t.fixed(p.shape(c)[0]) != 1:
        return None
    packed = p.pull(a, roles)
    return _result(
        _again(p, node, [packed.value, b, *([c] if c is not None else [])], value), _rest(p, value, roles), packed
    )


@_rule("Transpose")
def _transpose(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    rank = len(p.shape(value))
    perm = list(attribute(node, "perm") or range(rank)[::-1])
    source = node.inputs[0]
    assert source is not None
    packed = p.pull(source, roles.moved(dict(enumerate(perm))))
    rest_perm = [axis for place, axis in enumerate(perm) if place not in roles.axes]
    order = [sorted(rest_perm).index(axis) for axis in rest_perm]
    rest = _rest(p, value, roles)
    if order == sorted(order):
        return Packed(packed.value, rest, packed.by_token, packed.inside)
    new = [0, *(place + 1 for place in order)] if packed.by_token else order
    return _result(_again(p, node, [packed.value], value, perm=new), rest, packed)


@_rule(*MOVES)
def _move(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    """Follow the batch and the sequence through the operator: each must be an axis of the input by itself."""
    source = node.inputs[0]
    assert source is not None
    shape = p.shape(value)
    b = t.symbol("packed b", t.ZERO, t.sub(p.batch, t.ONE))
    s = t.symbol("packed s", t.ZERO, t.sub(p.length, t.ONE))
    token = t.add(t.mul(b, p.length), s)
    special = {roles.batch: b, roles.sequence: s} if not roles.merged else {roles.batch: token}
    index = tuple(
        t.ZERO
        if t.fixed(n) == 1
        else special[axis]
        if axis in special
        else t.symbol(f"packed {axis}", t.ZERO, t.sub(n, t.ONE))
        for axis, n in enumerate(shape)
    )
    source_shape = p.shape(source)
    if node.op_type in ("Reshape", "Flatten"):
        at = index_rules.moved(index, shape, source_shape)
    else:
        at = _unmoved(node, value, index, source_shape, p)
    found: dict[Term, int] = {}
    for axis, place in enumerate(at):
        if place in (b, s, token):
            found[place] = axis
        elif {b, s} & set(t.atoms_of(place)):
            return None
    source_roles = Roles(found[token], found[token]) if token in found else Roles(found.get(b), found.get(s))
    # An axis must not be lost: one of length 1 is none of these.
    wanted = {place for place in index if place in (b, s)} | ({b, s} if token in index else set())
    if {b, s} & {atom for place in at for atom in t.atoms_of(place)} != wanted:
        return None
    packed = p.pull(source, source_roles)
    rest = _rest(p, value, roles)
    if [t.fixed(n) for n in packed.rest] == [t.fixed(n) for n in rest] and None not in [t.fixed(n) for n in rest]:
        return Packed(packed.value, rest, packed.by_token, packed.inside)
    sizes = [t.fixed(n) for n in rest]
    if sizes.count(None) > 1:
        return None
    dims = [-1 if n is None else n for n in sizes]
    made = p.build.op("Reshape", packed.value, p.build.ints(*([0] if packed.by_token else []), *dims))
    return _result(made, rest, packed)


def _unmoved(
    node: ir.Node, value: ir.Value, index: tuple[Term, ...], source: tuple[Term, ...], p: Packer
) -> tuple[Term, ...]:
    """Return the index before Squeeze or Unsqueeze: only axes of length 1 come and go."""
    kept = iter([place for place, n in zip(index, p.shape(value), strict=True) if t.fixed(n) != 1])
    return tuple(t.ZERO if t.fixed(n) == 1 else next(kept) for n in source)


@_rule("Expand")
def _expand(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    source = node.inputs[0]
    assert source is not None
    packed = p.pull(source, roles.shifted(len(p.shape(value)) - len(p.shape(source))))
    rest = _rest(p, value, roles)
    if packed.rest == rest:
        return packed
    sizes = [t.fixed(n) for n in rest]
    if None in sizes:
        return None
    dims = p.build.ints(*([1] if packed.by_token else []), *(n for n in sizes if n is not None))
    return _result(p.build.op("Expand", p.aligned(packed, len(rest)), dims), rest, packed)


@_rule("Concat")
def _concat(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    rank = len(p.shape(value))
    axis = attribute(node, "axis", 0) % rank
    if axis in roles.axes:
        return None
    packed = [p.pull(v, roles) for v in node.inputs if v is not None]
    if not all(one.by_token for one in packed):
        # A part that is the same for all tokens has no axis for them.
        return None
    made = _again(p, node, [one.value for one in packed], value, axis=_others(rank, roles, axis))
    return _result(made, _rest(p, value, roles), *packed)


@_rule("Split")
def _split(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    rank = len(p.shape(value))
    axis = attribute(node, "axis", 0) % rank
    if axis in roles.axes or node.inputs[0] is None:
        return None
    packed = p.pull(node.inputs[0], roles)
    made = _again(p, node, [packed.value, *node.inputs[1:]], value, axis=_others(rank, roles, axis))
    producer = made.producer()
    assert producer is not None
    for old, new in zip(node.outputs, producer.outputs, strict=True):
        if old is not value:
            one = _result(new, _rest(p, old, roles), packed)
            if packed.inside:
                p.note(old, roles, one)
    return _result(made, _rest(p, value, roles), packed)


@_rule("Slice")
def _slice(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    source, starts, ends = node.inputs[:3]
    assert source is not None
    assert starts is not None
    rank = len(p.shape(source))
    given, steps = optional(node, 3), optional(node, 4)
    number = t.fixed(p.shape(starts)[0])
    if number is None:
        return None
    axes = [axis % rank for axis in p.x.numbers(given)] if given is not None else list(range(number))
    if any(axis in roles.axes for axis in axes):
        return None
    packed = p.pull(source, roles)
    new = p.build.ints(*(_others(rank, roles, axis) for axis in axes))
    return _result(_again(p, node, [packed.value, starts, ends, new, steps], value), _rest(p, value, roles), packed)


@_rule("Gather")
def _gather(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    data, indices = node.inputs
    assert data is not None
    assert indices is not None
    rank, looked_up = len(p.shape(data)), len(p.shape(indices))
    axis = attribute(node, "axis", 0) % rank
    inside = [role for role in roles.axes if axis <= role < axis + looked_up]
    if inside and len(inside) == len(roles.axes):
        # A table that is looked up for each token.
        packed = p.pull(indices, roles.moved({role: role - axis for role in roles.axes}))
        if axis != 0 and packed.by_token:
            return None
        return _result(_again(p, node, [data, packed.value], value), _rest(p, value, roles), packed)
    if inside:
        return None
    # A part of each token.
    places = {role: role if role < axis else role - looked_up + 1 for role in roles.axes}
    source = roles.moved(places)
    if constant_of(indices) is None and set(p.shape(indices)) & {p.batch, p.length}:
        return None
    packed = p.pull(data, source)
    made = _again(p, node, [packed.value, indices], value, axis=_others(rank, source, axis))
    return _result(made, _rest(p, value, roles), packed)


@_rule(*REDUCTIONS)
def _reduction(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    source, given = node.inputs[0], optional(node, 1)
    assert source is not None
    rank = len(p.shape(source))
    axes = p.x.numbers(given) if given is not None else attribute(node, "axes")
    if not axes:
        return None
    axes = [axis % rank for axis in axes]
    keeps = bool(attribute(node, "keepdims", 1))
    kept = list(range(rank)) if keeps else [axis for axis in range(rank) if axis not in axes]
    source_roles = roles.moved(dict(enumerate(kept)))
    if any(axis in source_roles.axes for axis in axes):
        return None
    packed = p.pull(source, source_roles)
    new = [_others(rank, source_roles, axis) for axis in axes]
    rest = _rest(p, value, roles)
    if given is None:
        return _result(_again(p, node, [packed.value], value, axes=new), rest, packed)
    return _result(_again(p, node, [packed.value, p.build.ints(*new)], value), rest, packed)


@_rule("RotaryEmbedding")
def _rotary(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> Packed | None:
    """Rotate [B, H, S, D] or [B, S, H * D] as one row of T tokens."""
    if not is_standard(node):
        return None
    data, cos, sin, ids = node.inputs[0], node.inputs[1], node.inputs[2], optional(node, 3)
    assert data is not None
    assert cos is not None
    assert sin is not None
    shape = p.shape(value)
    if roles != (Roles(0, 2) if len(shape) == 4 else Roles(0, 1)):
        return None
    packed = p.pull(data, roles)
    sizes = [n for n in map(t.fixed, packed.rest) if n is not None]
    if len(sizes) < len(packed.rest) or not packed.by_token:
        return None
    heads = sizes[0] if len(shape) == 4 else attribute(node, "num_heads", 0)
    width, build = math.prod(sizes), p.build
    flat = build.op("Reshape", packed.value, build.ints(1, -1, width))
    if ids is None:
        caches = [p.pull(cache, Roles(0, 1)) for cache in (cos, sin)]
        if not all(cache.by_token for cache in caches):
            return None
        tables = [build.op("Unsqueeze", cache.value, build.ints(0)) for cache in caches]
        inputs = [flat, *tables]
    else:
        places = p.pull(ids, Roles(0, 1))
        if not places.by_token:
            return None
        inputs = [flat, cos, sin, build.op("Unsqueeze", places.value, build.ints(0))]
    made = _again(p, node, inputs, value, num_heads=heads)
    rest = _rest(p, value, roles)
    made = build.op("Reshape", made, build.ints(-1, *sizes))
    return _result(made, rest, packed)
