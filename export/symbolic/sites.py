"""Every attention of a graph: those that a Softmax is the middle of, and those that are an operator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from ...models.masks import Mask
from . import operators, rules
from . import terms as t
from .algebra import Axes
from .interpreter import Interpreter, deep_stack
from .named import named_mask
from .scores import MOVES, PRODUCTS, NoAttention, Scores, follow, source_of
from .terms import Term
from .values import Faulty, Index, NotFollowed, constant_of, is_standard
from .weights import Weights, follow_weights

__all__ = ["Place", "Site", "Unlifted", "find_sites", "flag", "operand_indices", "places"]


@dataclass
class Site:
    """One attention.

    Attributes
    ----------
    node : ir.Node
        The Softmax, or the operator.
    form : str
        "decomposed", or the operator's domain and name.
    q_heads, kv_heads, head_size : int or None
        None where the graph leaves it open.
    scale : float
        Factor of the scores; `softcap` their bound, or 0.
    cross : bool
        Whether the keys come from another sequence.
    mask : Mask
        Which keys a query attends.
    mask_values : tuple of ir.Value
        The values in the graph that mask.
    bias, sink : str or None
        What is added to the scores, and the scores of a key without value.
    empty_rows : str
        What a row without keys gives: "zero", "mean", "nan" or "unknown".
    assumes : tuple of (str, str)
        Pairs of a tensor and a check under which the mask is exact.
    axes : Axes
        The indices that the mask is a function of.
    attend : Term
        The mask as a term.
    scores, product : ir.Value or None
        The scores that the mask was read from, and the product in them; `score_scale` is the scale between them,
        None if the product's elements are in another order.
    weights : ir.Value or None
        What the values are multiplied with.
    added : tuple of ir.Value
        What is in the scores beside the product and the mask.
    read : Scores or Attention
        What was read: the scores taken apart, or the operator.
    """

    node: ir.Node
    form: str
    q_heads: int | None
    kv_heads: int | None
    head_size: int | None
    scale: float
    softcap: float
    cross: bool
    mask: Mask
    bias: str | None
    sink: str | None
    empty_rows: str
    assumes: tuple[tuple[str, str], ...]
    axes: Axes
    attend: Term
    mask_values: tuple[ir.Value, ...]
    interpreter: Interpreter
    scores: ir.Value | None = None
    product: ir.Value | None = None
    score_scale: float | None = None
    weights: ir.Value | None = None
    added: tuple[ir.Value, ...] = ()
    read: Scores | operators.Attention | None = None


@dataclass(frozen=True)
class Unlifted:
    """A Softmax or an attention operator that was not understood, and why.

    `attention` is false for what is none, and `fault` tells what is known to go wrong.
    """

    node: ir.Node
    reason: str
    attention: bool = True
    fault: str | None = None


def find_sites(graph: ir.Graph) -> tuple[list[Site], list[Unlifted]]:
    """Find the attention of a graph, in its order."""
    x = Interpreter(graph)
    sites: list[Site] = []
    unlifted: list[Unlifted] = []
    for node in graph:
        try:
            with deep_stack():
                site = _decomposed(x, node) if _is_softmax(node) else _operator(x, node)
        except RecursionError:
            unlifted.append(Unlifted(node, "what leads to it is nested too deeply"))
        except (NotFollowed, t.TooLarge) as error:
            fault = error.fault if isinstance(error, Faulty) else None
            unlifted.append(Unlifted(node, str(error), not isinstance(error, NoAttention), fault))
        except Exception as error:
            # A node that its operator's specification doesn't allow: rules take its inputs and attributes for granted.
            unlifted.append(Unlifted(node, f"what leads to it is malformed: {type(error).__name__} {error}"[:200]))
        else:
            if site is not None:
                sites.append(site)
    return sites, unlifted


def _is_softmax(node: ir.Node) -> bool:
    return node.op_type == "Softmax" and is_standard(node)


def index_axes(x: Interpreter, shape: Index) -> tuple[Axes, Index]:
    """Return the indices of scores of shape [B, H, Q, K] (or [B*H, Q, K]), and the element at (b, h, q, k).

    Raises
    ------
    NotFollowed
        If the rank is another.
    """
    if len(shape) < 3:
        raise NoAttention(f"its scores have rank {len(shape)}: it is no attention")
    if len(shape) not in (3, 4):
        raise NotFollowed(f"scores of rank {len(shape)}")
    if len(shape) == 4:
        batch, heads = shape[:2]
    else:
        # [B*H, Q, K]: the number that multiplies the batch is the number of heads.
        outer = shape[0]
        heads = t.integer(outer.args[1][0][1]) if outer.op == "poly" and outer.args[1] else t.ONE
        batch = t.exact_quotient(outer, heads) or outer
    q_len, k_len = shape[-2:]
    b, h, q, k = (
        t.symbol(name, t.ZERO, t.sub(n, t.ONE)) for name, n in (("b", batch), ("h", heads), ("q", q_len), ("k", k_len))
    )
    if t.fixed(heads) == 1:
        h = t.ZERO
    axes = Axes(b, h, q, k, q_len, k_len, shape_of=x.shape_of)
    return axes, ((b, h, q, k) if len(shape) == 4 else (t.add(t.mul(b, heads), h), q, k))


def _decomposed(x: Interpreter, node: ir.Node) -> Site | None:
    value = node.inputs[0]
    assert value is not None
    shape = x.shape(value)
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
    if axis not in (-1, len(shape) - 1):
        raise NotFollowed(f"its Softmax runs over axis {axis}, not over keys")
    axes, index = index_axes(x, shape)
    weights = follow_weights(x, node)
    scores = follow(x, value, axes, index)
    if scores.sink is not None:
        axes, index = index_axes(x, (*shape[:-1], x.shape(scores.product.outputs[0])[-1]))
        scores = follow(x, value, axes, index)
    if not scores.capped:
        raise NotFollowed("its scores end in a tanh that is not multiplied by its bound")
    if weights.dropped != (scores.sink is not None):
        raise NotFollowed("its weights lose columns that are no sink's, or keep a sink's")
    heads = _heads(x, scores, axes)
    axes.past = heads.past
    parts: list[tuple[Term, ir.Value | None]] = [*zip(scores.attend, scores.masks, strict=True)]
    mask = named_mask(x, parts, axes)
    mask, parts = weights.masked(x, mask, parts, axes, index)
    product = scores.product.outputs[0]
    return Site(
        node,
        "decomposed",
        heads.queries,
        heads.keys,
        heads.size,
        scores.scale * heads.scale,
        abs(scores.softcap),
        heads.cross,
        mask,
        _joined(scores.bias),
        None if scores.sink is None else scores.sink.name,
        _empty_rows(scores, weights),
        tuple(sorted(axes.assumes)),
        axes,
        t.both(*(term for term, _ in parts)),
        tuple(dict.fromkeys(scores.masks)),
        x,
        value,
        product,
        scores.scale if scores.index == index else None,
        weights.value,
        tuple(dict.fromkeys((*scores.bias, *scores.rows, *([scores.sink] if scores.sink else [])))),
        scores,
    )


def _joined(values: list[ir.Value]) -> str | None:
    return " + ".join(dict.fromkeys(str(value.name) for value in values)) or None


def _operator(x: Interpreter, node: ir.Node) -> Site | None:
    found = operators.read(x, node)
    if found is None:
        return None
    # Reading the mask records what it assumes, so it comes first.
    mask = named_mask(x, found.attend, found.axes)
    kv_heads = found.kv_heads
    if found.key is not None and kv_heads == found.q_heads:
        # Heads that were repeated before the operator are counted once.
        kv_heads = _key_heads(_trace(x, *found.key).index, found.axes, found.q_heads)
    return Site(
        node,
        f"{node.domain or 'ai.onnx'}.{node.op_type}",
        found.q_heads,
        kv_heads,
        found.head_size,
        found.scale,
        found.softcap,
        found.cross or (found.axes.past is None and _is_apart(node, found.key)),
        mask,
        _joined(found.bias),
        None if found.sink is None else found.sink.name,
        found.empty_rows,
        tuple(sorted(found.axes.assumes)),
        found.axes,
        t.both(*(term for term, _ in found.attend)),
        tuple(dict.fromkeys(value for _, value in found.attend if value is not None)),
        x,
        read=found,
    )


def _is_apart(node: ir.Node, key: tuple[ir.Value, Index] | None) -> bool:
    query = node.inputs[0]
    return query is not None and key is not None and _come_apart(query, key[0])


def _empty_rows(scores: Scores, weights: Weights) -> str:
    if weights.rows_zeroed or (weights.nan_zeroed and scores.fills and all(math.isinf(fill) for fill in scores.fills)):
        return "zero"
    if not scores.fills:
        return "unknown"
    if scores.sink is not None:
        # A sink takes all the weight.
        return "zero" if all(fill < -1e30 for fill in scores.fills) else "unknown"
    if any(math.isinf(fill) for fill in scores.fills):
        return "nan"
    # A score vanishes beside the lowest number of its type, not beside -1e4.
    return "mean" if scores.replaced or all(fill < -1e30 for fill in scores.fills) else "unknown"


@dataclass(frozen=True)
class _Heads:
    queries: int | None
    keys: int | None
    size: int | None
    scale: float
    cross: bool
    past: Term | None


def _heads(x: Interpreter, scores: Scores, axes: Axes) -> _Heads:
    size = x.shape(scores.query)[-2 if flag(scores.product, "transA") else -1]
    element = t.symbol("d", t.ZERO, t.sub(size, t.ONE))
    a, b = operand_indices(scores.product, scores.index, element)
    query_place, key_place = _trace(x, scores.query, a), _trace(x, scores.key, b)
    q, k = axes.q, axes.k
    of_query, of_key = ({atom for i in place.index for atom in t.atoms_of(i)} for place in (query_place, key_place))
    if k in of_query or q in of_key:
        raise NotFollowed("one operand of its product varies with queries and keys, or both are swapped")
    queries = t.fixed(axes.h.args[2]) if axes.h.op == "symbol" else 0
    queries = None if queries is None else queries + 1
    past = _past(x, key_place, axes)
    alpha = scores.product.attributes.get("alpha")
    return _Heads(
        queries,
        _key_heads(key_place.index, axes, queries),
        t.fixed(size),
        query_place.scale * key_place.scale * (1.0 if alpha is None else alpha.as_float()),
        past is None and _is_cross(query_place.value, key_place.value, axes),
        past,
    )


def _past(x: Interpreter, key: Place, axes: Axes) -> Term | None:
    """Return the number of cached keys: those that a Concat puts before the keys of this run."""
    node = key.value.producer()
    if node is None or node.op_type != "Concat" or node.inputs[0] is None:
        return None
    axis = node.attributes["axis"].as_int() % len(key.index)
    return x.shape(node.inputs[0])[axis] if axes.k in set(t.atoms_of(key.index[axis])) else None


def operand_indices(product: ir.Node, index: Index, element: Term) -> tuple[Index, Index]:
    """Return where a product's operands are read for its element at `index`, at one element of what is summed over."""
    if product.op_type == "Einsum":
        return _einsum_operands(product, index, element)
    *batch, i, j = index
    a = (*batch, element, i) if flag(product, "transA") else (*batch, i, element)
    b = (*batch, j, element) if flag(product, "transB") else (*batch, element, j)
    return a, b


def flag(node: ir.Node, name: str) -> bool:
    """Return whether an attribute is there and not 0."""
    return name in node.attributes and bool(node.attributes[name].as_int())


def _einsum_operands(node: ir.Node, index: Index, element: Term) -> tuple[Index, Index]:
    equation = node.attributes["equation"].as_string().replace(" ", "")
    operands, _, result = equation.partition("->")
    names = operands.split(",")
    if len(names) != 2 or "." in equation or len(result) != len(index):
        raise NotFollowed(f"an Einsum {equation!r} is no product of queries and keys")
    at = dict(zip(result, index, strict=True))
    contracted = [letter for letter in names[0] if letter not in at and letter in names[1]]
    if len(contracted) != 1 or any(letter not in at for letter in set("".join(names)) - set(contracted)):
        raise NotFollowed(f"an Einsum {equation!r} is no product of queries and keys")
    at[contracted[0]] = element
    return tuple(at[letter] for letter in names[0]), tuple(at[letter] for letter in names[1])


@dataclass(frozen=True)
class Place:
    value: ir.Value
    index: Index
    scale: float


def places(x: Interpreter, value: ir.Value, index: Index) -> Iterator[Place]:
    """Yield an operand and what it comes from, up through what only moves or scales it."""
    scale = 1.0
    index = rules.broadcast_index(x.shape(value), index)
    yield Place(value, index, scale)
    while (node := value.producer()) is not None and is_standard(node):
        if node.op_type in MOVES:
            try:
                value, index = source_of(x, node, value, index)
            except NotFollowed:
                return
        else:
            factor = _factor(x, node)
            if factor is None:
                return
            value, times = factor
            scale *= times
            index = rules.broadcast_index(x.shape(value), index)
        yield Place(value, index, scale)


def _trace(x: Interpreter, value: ir.Value, index: Index) -> Place:
    """Return what an operand comes from, as far up as it is followed."""
    *_, last = places(x, value, index)
    return last


def _factor(x: Interpreter, node: ir.Node) -> tuple[ir.Value, float] | None:
    """Return the scaled operand and the number, where a node scales by a number."""
    if node.op_type not in ("Mul", "Div"):
        return None
    a, b = node.inputs
    assert a is not None
    assert b is not None
    for scaled, number in ((a, b), (b, a)):
        try:
            shape = x.shape(number)
        except NotFollowed:
            continue
        if any(t.fixed(n) != 1 for n in shape):
            continue
        term = x.term(number, (t.ZERO,) * len(shape))
        if term.op == "number":
            times = float(term.args[0])
            if node.op_type == "Mul":
                return scaled, times
            if scaled is a:
                return scaled, 1 / times
    return None


def _key_heads(index: Index, axes: Axes, queries: int | None) -> int | None:
    """Return the number of key heads from how a query's head picks one."""
    if queries is None:
        return None
    inside = [i for i in index if axes.h in set(t.atoms_of(i))]
    if not inside:
        return 1 if queries > 1 and axes.h is not t.ZERO and axes.h not in index else queries
    number = sorted({t.fixed(a.args[1]) or 1 for i in inside for a in t.atoms_of(i) if a.op == "floordiv"})
    return queries // number[-1] if number else queries


def _is_cross(query: ir.Value, key: ir.Value, axes: Axes) -> bool:
    """Return whether queries and keys come from different sequences."""
    return axes.q_len is not axes.k_len or _come_apart(query, key)


def _come_apart(query: ir.Value, key: ir.Value) -> bool:
    """Return whether two operands are projections of different values."""
    ours, theirs = set(_projected(query)), set(_projected(key))
    return bool(ours and theirs and not ours & theirs)


def _projected(value: ir.Value) -> Iterator[ir.Value]:
    """Yield what the nearest products with a weight, up from a value, project."""
    seen: set[ir.Value] = set()
    waiting = [value]
    while waiting and len(seen) < 200:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        node = current.producer()
        if node is None:
            if constant_of(current) is None:
                yield current
            continue
        if node.op_type in PRODUCTS:
            for place, operand in enumerate(node.inputs[:2]):
                other = node.inputs[1 - place]
                if operand is not None and other is not None and constant_of(other) is not None:
                    yield _unmoved(operand)
            continue
        if node.op_type not in ("Shape", "Size"):
            waiting += [v for v in node.inputs[:2] if v is not None]


def _unmoved(value: ir.Value) -> ir.Value:
    while (node := value.producer()) is not None and node.op_type in MOVES and node.inputs[0] is not None:
        value = node.inputs[0]
    return value
