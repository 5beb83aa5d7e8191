"""Where the graph holds an attention's queries, keys, values and result with their heads side by side: [B, S, H * D].

Shapes in names: B batch, S sequence, H heads, D size of a head, E = H * D. Exporters split heads off by a reshape and
a transpose, in one of many ways. Which element of which value an operand is, is read from the graph as a function of
(b, h, s, d); the value farthest up (for the result: farthest down) where that is row-major over (b, s, h * D + d) is
what a fused operator takes. Nothing is matched by pattern.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from ..symbolic import rules
from ..symbolic import terms as t
from ..symbolic.interpreter import Interpreter
from ..symbolic.operators import Attention
from ..symbolic.scores import MOVES, PRODUCTS, Scores
from ..symbolic.sites import Place, Site, flag, operand_indices, places
from ..symbolic.terms import Term
from ..symbolic.values import Index, NotFollowed, describe, is_standard

__all__ = ["LAYOUTS", "Located", "Operands", "Result", "operands_of"]


@dataclass(frozen=True)
class Located:
    """A value that holds an operand, and how: a key of `LAYOUTS`."""

    value: ir.Value
    layout: str


@dataclass(frozen=True)
class Result:
    """A value that an attention's result is, and how it is laid out."""

    value: ir.Value
    layout: str


@dataclass(frozen=True)
class Cache:
    """The keys and values of earlier runs, and both with this run's; [B, Hkv, P, D] and [B, Hkv, P + K, D]."""

    past_key: ir.Value
    past_value: ir.Value
    present_key: ir.Value | None
    present_value: ir.Value | None


@dataclass(frozen=True)
class Operands:
    """What an attention takes and gives.

    Attributes
    ----------
    query, key, value : Located
        Keys and values have `kv_heads` heads: those that were repeated for groups of queries are read before that.
    result : Result
        What is to be replaced.
    scale : float
        Factor of the product of queries and keys, with what scaled either on the way.
    kv_heads : int
        Number of key heads.
    head_size, v_head_size : int
        D of queries and keys, and of values.
    cache : Cache or None
        What a cache adds.
    """

    query: Located
    key: Located
    value: Located
    result: Result
    scale: float
    kv_heads: int
    head_size: int
    v_head_size: int
    cache: Cache | None


@dataclass(frozen=True)
class Form:
    """What of an operator is read: inputs and attributes with which it is left as it is, and where its cache is."""

    kept: Mapping[int, str]
    kept_attributes: tuple[str, ...] = ()
    past: tuple[int, ...] = ()
    # Whether the result's heads are side by side, however the queries come.
    merges: bool = False


FORMS = {
    "ai.onnx.Attention": Form({}, past=(4, 5)),
    "com.microsoft.MultiHeadAttention": Form(
        {3: "the projections' bias", 8: "a cache that is a buffer", 9: "a cache of beams"}, past=(6, 7), merges=True
    ),
    "com.microsoft.GroupQueryAttention": Form(
        {3: "a cache", 4: "a cache"}, ("do_rotary", "smooth_softmax"), merges=True
    ),
}

# Where the element (b, h, s, d) is, from the best layout to the worst: what has to be moved for [B, S, E].
LAYOUTS = {
    "BSE": lambda b, h, s, d, heads, size: (b, s, t.add(t.mul(h, t.integer(size)), d)),
    "BSHD": lambda b, h, s, d, heads, size: (b, s, h, d),
    "BHSD": lambda b, h, s, d, heads, size: (b, h, s, d),
    "(BH)SD": lambda b, h, s, d, heads, size: (t.add(t.mul(b, t.integer(heads)), h), s, d),
    "BSD": lambda b, h, s, d, heads, size: (b, s, d),
}


def operands_of(site: Site) -> Operands:
    """Find what an attention takes and gives.

    Raises
    ------
    NotFollowed
        If the graph leaves heads or sizes open, or holds an operand in no layout that is known.
    """
    if site.q_heads is None or site.head_size is None:
        raise NotFollowed("its number of heads or their size is not in the graph")
    raw = _decomposed(site, site.read) if isinstance(site.read, Scores) else _operator(site)
    return _located(site, raw)


@dataclass(frozen=True)
class _Raw:
    """Operands as the graph hands them over: each a value, and its element at (b, h, s, d).

    `scale` is the factor between the product and the scores, `e` and `v_size` the index in a head of the values.
    """

    query: tuple[ir.Value, Index]
    key: tuple[ir.Value, Index]
    value: tuple[ir.Value, Index]
    result: tuple[ir.Value, Index]
    scale: float
    d: Term
    e: Term
    v_size: int
    k: Term
    cache: Cache | None = None


def locate(
    x: Interpreter, found: Sequence[Place], batch: Term, point: tuple[Term, Term, Term, Term], heads: int, size: int
) -> tuple[Located, float] | None:
    """Return the best of some places of an operand, and the factor between it and the operand.

    The first layout of the table that any place has wins; of several places with it, the one farthest up.
    """
    b, h, s, d = point
    for name, layout in LAYOUTS.items():
        if name == "BSD" and heads != 1:
            continue
        wanted = layout(b, h, s, d, heads, size)
        for place in reversed(found):
            shape = x.shape(place.value)
            if len(shape) != len(wanted) or place.value.name is None:
                continue
            whole = t.mul(batch, t.integer(heads)) if name == "(BH)SD" else batch
            fits = shape[0] is whole and (name != "BSE" or t.fixed(shape[2]) == heads * size)
            if fits and place.index == rules.broadcast_index(shape, wanted):
                return Located(place.value, name), place.scale
    return None


def _decomposed(site: Site, scores: Scores) -> _Raw:
    x, product = site.interpreter, scores.product
    d = t.symbol("d", t.ZERO, t.integer((site.head_size or 1) - 1))
    query_index, key_index = operand_indices(product, scores.index, d)
    weighing, values_index, values, v_size, out_index = _weighing(site)
    alpha = product.attributes.get("alpha")
    scale = scores.scale * (1.0 if alpha is None else alpha.as_float())
    e = t.symbol("e", t.ZERO, t.integer(v_size - 1))
    key, value = (scores.key, key_index), (values, values_index)
    raw = _Raw(
        (scores.query, query_index), key, value, (weighing.outputs[0], out_index), scale, d, e, v_size, site.axes.k
    )
    return raw if site.axes.past is None else _uncached(x, site, raw)


def _uncached(x: Interpreter, site: Site, raw: _Raw) -> _Raw:
    """Return the operands of this run, where a Concat puts those of a cache before them."""
    parts = []
    for value, index in (raw.key, raw.value):
        *_, top = places(x, value, index)
        node = top.value.producer()
        if node is None or node.op_type != "Concat" or len(node.inputs) != 2 or len(top.index) != 4 or top.scale != 1:
            raise NotFollowed("its cache is not joined with its keys and values in a known form")
        past, new = node.inputs
        if node.attributes["axis"].as_int() % 4 != 2 or past is None or new is None or top.index[2] is not site.axes.k:
            raise NotFollowed("its cache is not [B, H, P, D]")
        place = t.symbol("k", t.ZERO, t.sub(x.shape(new)[2], t.ONE))
        parts.append((past, new, (*top.index[:2], place, top.index[3]), node.outputs[0], place))
    (past_key, key, key_index, present_key, k), (past_value, value, value_index, present_value, _) = parts
    cache = Cache(past_key, past_value, present_key, present_value)
    return replace(raw, key=(key, key_index), value=(value, value_index), k=k, cache=cache)


def _operator(site: Site) -> _Raw:
    """Read the operands of an operator, [B, H, S, D] or [B, S, H * D]."""
    x, node, axes = site.interpreter, site.node, site.axes
    reader = FORMS.get(site.form)
    if reader is None:
        raise NotFollowed(f"{site.form} is left as it is")
    for place, what in reader.kept.items():
        if rules.optional(node, place) is not None:
            raise NotFollowed(f"{site.form} with {what} is left as it is")
    for name in reader.kept_attributes:
        if name in node.attributes and node.attributes[name].value:
            raise NotFollowed(f"{site.form} with {name} is left as it is")
    outputs = [
        output for output in node.outputs[3:] if output.name and (list(output.uses()) or output.is_graph_output())
    ]
    if outputs:
        raise NotFollowed(f"{site.form} with its scores as an output is left as it is")
    query, key, value = (rules.optional(node, place) for place in range(3))
    if query is None or key is None or value is None or len(x.shape(query)) > 4:
        raise NotFollowed(f"{site.form} with packed operands is left as it is")
    assert site.q_heads is not None
    assert isinstance(site.read, Attention)
    # What the operator itself says: heads that were repeated before it are found by where they are read.
    groups = site.read.kv_heads or site.q_heads
    v_shape = x.shape(value)
    v_size = (
        t.fixed(v_shape[3]) if len(v_shape) == 4 else t.fixed(t.exact_quotient(v_shape[2], t.integer(groups)) or t.ZERO)
    )
    if not v_size:
        raise NotFollowed("the size of its values' heads is not in the graph")
    d = t.symbol("d", t.ZERO, t.integer((site.head_size or 1) - 1))
    e = t.symbol("e", t.ZERO, t.integer(v_size - 1))
    k_shape = x.shape(key)
    k = t.symbol("k", t.ZERO, t.sub(k_shape[2] if len(k_shape) == 4 else k_shape[1], t.ONE))
    head = t.floordiv(axes.h, t.integer(site.q_heads // groups))

    def element(operand: ir.Value, h: Term, s: Term, i: Term, heads: int, size: int) -> tuple[ir.Value, Index]:
        layout = "BHSD" if len(x.shape(operand)) == 4 else "BSE"
        return operand, LAYOUTS[layout](axes.b, h, s, i, heads, size)

    result = node.outputs[0]
    out_layout = "BHSD" if len(x.shape(query)) == 4 and not reader.merges else "BSE"
    out_index = LAYOUTS[out_layout](axes.b, axes.h, axes.q, e, site.q_heads, v_size)
    size = site.head_size or 1
    return _Raw(
        element(query, axes.h, axes.q, d, site.q_heads, size),
        element(key, head, k, d, groups, size),
        element(value, head, k, e, groups, v_size),
        (result, out_index),
        site.scale,
        d,
        e,
        v_size,
        k,
        _cache(node, reader),
    )


def _cache(node: ir.Node, form: Form) -> Cache | None:
    past = [rules.optional(node, place) for place in form.past]
    if not past or past[0] is None or past[1] is None:
        return None
    present = [node.outputs[place] if len(node.outputs) > place else None for place in (1, 2)]
    return Cache(past[0], past[1], present[0], present[1])


def _located(site: Site, raw: _Raw) -> Operands:
    x, axes = site.interpreter, site.axes
    assert site.q_heads is not None
    assert site.head_size is not None
    batch_size = t.length(axes.b)
    dtype = raw.result[0].dtype
    query, key, value = (
        _found(x, *operand, dtype, what)
        for operand, what in ((raw.query, "queries"), (raw.key, "keys"), (raw.value, "values"))
    )
    q_located = locate(x, query, batch_size, (axes.b, axes.h, axes.q, raw.d), site.q_heads, site.head_size)
    k_located = v_located = None
    # Heads that were repeated for their queries are read before that, if both keys and values are.
    for kv_heads in dict.fromkeys((site.kv_heads or site.q_heads, site.q_heads)):
        h = t.floordiv(axes.h, t.integer(site.q_heads // kv_heads))
        k_located = locate(x, key, batch_size, (axes.b, h, raw.k, raw.d), kv_heads, site.head_size)
        v_located = locate(x, value, batch_size, (axes.b, h, raw.k, raw.e), kv_heads, raw.v_size)
        if k_located and v_located:
            break
    for what, located in (("queries", q_located), ("keys", k_located), ("values", v_located)):
        if located is None:
            raise NotFollowed(f"its {what} are laid out in a way that is not known")
    assert q_located is not None
    assert k_located is not None
    assert v_located is not None
    if v_located[1] != 1:
        raise NotFollowed("its values are scaled")
    if raw.cache is not None and t.fixed(x.shape(raw.cache.past_key)[1]) != kv_heads:
        raise NotFollowed("the heads of its cache are not those of its keys")
    scale = raw.scale * q_located[1] * k_located[1]
    result = _result(site, raw.result[0], raw.result[1], raw.e, raw.v_size)
    return Operands(
        q_located[0], k_located[0], v_located[0], result, scale, kv_heads, site.head_size, raw.v_size, raw.cache
    )


def _found(x: Interpreter, value: ir.Value, index: Index, dtype: ir.DataType | None, what: str) -> list[Place]:
    """Return the places of an operand that have the type of the result: casts between are the kernel's business."""
    found = [place for place in places(x, value, index) if place.value.dtype in (dtype, None)]
    if not found:
        raise NotFollowed(f"its {what} are of another type than its result")
    return found


def _weighing(site: Site) -> tuple[ir.Node, Index, ir.Value, int, Index]:
    """Return the product of weights and values.

    It is the node, the values and where they are read, D, and the index of the result at (b, h, q, e).
    """
    axes = site.axes
    assert site.weights is not None
    wanted = _weights_index(site)
    waiting, seen = [site.weights], set()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.is_graph_output():
            raise NotFollowed(f"its weights are an output of the model: {describe(value)}")
        for node, place in value.uses():
            if node.op_type in PRODUCTS and place < 2:
                found = _product_of(site, node, place, value, wanted)
                if found is not None:
                    return found
            elif is_standard(node) and (node.op_type in MOVES or node.op_type in ("Mul", "Div", "Where")):
                waiting.append(node.outputs[0])
    raise NotFollowed(
        f"the product of its weights ({axes.q_len} x {axes.k_len}) and its values was not found in a known form"
    )


def _weights_index(site: Site) -> Index:
    axes = site.axes
    assert site.weights is not None
    rank = len(site.interpreter.shape(site.weights))
    if rank == 4:
        return axes.b, axes.h, axes.q, axes.k
    return t.add(t.mul(axes.b, t.integer(site.q_heads or 1)), axes.h), axes.q, axes.k


def _product_of(
    site: Site, node: ir.Node, place: int, weights: ir.Value, wanted: Index
) -> tuple[ir.Node, Index, ir.Value, int, Index] | None:
    """Match the result's index so that the weights that are read are those of (b, h, q, k)."""
    x, axes = site.interpreter, site.axes
    output, values = node.outputs[0], node.inputs[1 - place]
    assert values is not None
    shape = x.shape(output)
    for axis in range(len(shape)):
        size = t.fixed(shape[axis])
        if size is None:
            continue
        e = t.symbol("e", t.ZERO, t.integer(size - 1))
        outer = _outer(site, len(shape) - 1)
        for rest in outer:
            index = (*rest[:axis], e, *rest[axis:])
            if node.op_type != "Einsum" and (axis != len(shape) - 1 or flag(node, "transA") or place != 0):
                continue
            try:
                operands = operand_indices(node, index, axes.k)
            except NotFollowed:
                return None
            for step in places(x, weights, operands[place]):
                if step.value is site.weights and step.index == rules.broadcast_index(x.shape(step.value), wanted):
                    return node, operands[1 - place], values, size, index
    return None


def _outer(site: Site, rank: int) -> Iterator[Index]:
    axes = site.axes
    if rank == 3:
        yield from itertools.permutations((axes.b, axes.h, axes.q))
    elif rank == 2:
        yield t.add(t.mul(axes.b, t.integer(site.q_heads or 1)), axes.h), axes.q


def _result(site: Site, output: ir.Value, index: Index, e: Term, size: int) -> Result:
    """Return the value farthest down that is the result in [B, S, E], else the product itself."""
    x, axes = site.interpreter, site.axes
    assert site.q_heads is not None
    b, q, column = LAYOUTS["BSE"](axes.b, axes.h, axes.q, e, site.q_heads, size)
    forms = {"BSE": (b, q, column), "(BS)E": (t.add(t.mul(b, axes.q_len), q), column)}
    value, best = output, None
    while True:
        shape = x.shape(value)
        for layout, wanted in forms.items():
            if len(shape) == len(wanted) and t.fixed(shape[-1]) == site.q_heads * size:
                last = list(places(x, value, rules.broadcast_index(shape, wanted)))
                if any(p.value is output and p.index == rules.broadcast_index(x.shape(output), index) for p in last):
                    best = Result(value, layout)
        uses = list(value.uses())
        if value.is_graph_output() or len(uses) != 1 or uses[0][0].op_type not in MOVES or uses[0][0].op_type == "Cast":
            break
        if uses[0][1] != 0:
            break
        value = uses[0][0].outputs[0]
    if best is not None:
        return best
    for name, element in LAYOUTS.items():
        fits = element(axes.b, axes.h, axes.q, e, site.q_heads, size)
        if name != "BSE" and (name != "BSD" or site.q_heads == 1) and index == fits:
            return Result(output, name)
    raise NotFollowed("its result is laid out in a way that is not known")
