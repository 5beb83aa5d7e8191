"""Attention that is an operator already: its mask comes from attributes and inputs, by the operator's own rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import onnx_ir as ir

from . import rules
from . import terms as t
from .additive import LARGEST_FILL, split_added
from .algebra import Axes
from .interpreter import Interpreter
from .scores import Addend, origin
from .terms import Term
from .values import Faulty, Index, NotFollowed, describe, kind_of

__all__ = ["Attention", "read"]


@dataclass
class Attention:
    """What an attention operator computes.

    Attributes
    ----------
    axes : Axes
        The indices that its mask is a function of.
    q_heads, kv_heads, head_size : int or None
        None where the graph leaves it open.
    scale, softcap : float
        Factor and bound of the scores.
    cross : bool
        Whether keys come from another sequence, as far as the lengths say.
    empty_rows : str
        What the operator gives for a row without keys.
    key : (ir.Value, Index) or None
        The keys, and where a query's head reads them.
    attend : list of (Term, ir.Value or None)
        Booleans that all must hold, each with the value that it comes from.
    bias : list of ir.Value
        What is added to the scores.
    addends : list of Addend
        Each input that holds a bias.
    """

    axes: Axes
    q_heads: int | None
    kv_heads: int | None
    head_size: int | None
    scale: float
    softcap: float = 0.0
    cross: bool = False
    empty_rows: str = "zero"
    sink: ir.Value | None = None
    key: tuple[ir.Value, Index] | None = None
    attend: list[tuple[Term, ir.Value | None]] = field(default_factory=list)
    bias: list[ir.Value] = field(default_factory=list)
    addends: list[Addend] = field(default_factory=list)


def read(x: Interpreter, node: ir.Node) -> Attention | None:
    """Read an attention operator; None if the node is another operator.

    Raises
    ------
    NotFollowed
        If its mask is of a form that can't be read.
    """
    reader = _READERS.get((node.domain if node.domain != "ai.onnx" else "", node.op_type))
    return None if reader is None else reader(x, node)


def _axes(x: Interpreter, batch: Term, heads: Term, q_len: Term, k_len: Term, past: Term | None) -> Axes:
    b, h, q, k = (
        t.symbol(name, t.ZERO, t.sub(n, t.ONE)) for name, n in (("b", batch), ("h", heads), ("q", q_len), ("k", k_len))
    )
    return Axes(b, t.ZERO if t.fixed(heads) == 1 else h, q, k, q_len, k_len, past, x.shape_of)


def _number(node: ir.Node, name: str, default: float) -> float:
    found = node.attributes.get(name)
    return default if found is None else float(found.value)


def _causal(axes: Axes, offset: Term) -> Term:
    return t.at_most_zero(t.sub(t.sub(axes.k, axes.q), offset))


def _heads_and_size(x: Interpreter, value: ir.Value, heads: int) -> tuple[Term, Term, Term, Term]:
    """Return batch, heads, length and head size of [B, H, S, D], or of [B, S, H * D] with the number of heads."""
    shape = x.shape(value)
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    if len(shape) != 3 or not heads:
        raise NotFollowed(f"{describe(value)} has rank {len(shape)}, and the operator names no heads")
    size = t.exact_quotient(shape[2], t.integer(heads))
    if size is None:
        raise NotFollowed(f"{describe(value)} is not divided by {heads} heads")
    return shape[0], t.integer(heads), shape[1], size


def _onnx_attention(x: Interpreter, node: ir.Node) -> Attention:
    """ai.onnx Attention 23 to 25."""
    query, key = node.inputs[:2]
    assert query is not None
    assert key is not None
    q_heads, kv_heads = int(_number(node, "q_num_heads", 0)), int(_number(node, "kv_num_heads", 0))
    batch, heads, q_len, size = _heads_and_size(x, query, q_heads)
    _, groups, k_len, _ = _heads_and_size(x, key, kv_heads)
    past_key = rules.optional(node, 4)
    past = x.shape(past_key)[2] if past_key is not None else None
    axes = _axes(x, batch, heads, q_len, k_len if past is None else t.add(past, k_len), past)
    head_size = t.fixed(size)
    scale = _number(node, "scale", 0.0) or (head_size**-0.5 if head_size else math.nan)
    attention = Attention(
        axes, t.fixed(heads), t.fixed(groups), head_size, scale, _number(node, "softcap", 0.0), q_len is not k_len
    )
    attention.key = key, _key_index(x, key, axes, attention)
    nonpad = rules.optional(node, 6)
    offset = t.ZERO if past is None else past
    if nonpad is not None:
        length = x.term(nonpad, (axes.b,))
        attention.attend.append((_before(axes, length), nonpad))
        offset = t.sub(length, q_len)
    if _number(node, "is_causal", 0):
        attention.attend.append((_causal(axes, offset), None))
    # Opset 25: neighbours before and after the query's own position, -1 is unbounded.
    left, right = int(_number(node, "left_window_size", -1)), int(_number(node, "right_window_size", -1))
    center = t.add(axes.q, offset)
    if left >= 0:
        attention.attend.append((t.at_most_zero(t.sub(t.sub(center, t.integer(left)), axes.k)), None))
    if right >= 0:
        attention.attend.append((t.at_most_zero(t.sub(axes.k, t.add(center, t.integer(right)))), None))
    if (mask := rules.optional(node, 3)) is not None:
        _given_mask(x, attention, mask)
    return attention


def _key_index(x: Interpreter, key: ir.Value, axes: Axes, attention: Attention) -> Index:
    """Return where [B, H, K, D], [B, K, H * D] or, with the values, [B, K, H, 2, D] is read by a query's head."""
    shape = x.shape(key)
    size = shape[-1] if len(shape) > 3 else t.integer(attention.head_size or 1)
    element = t.symbol("d", t.ZERO, t.sub(size, t.ONE))
    group = (attention.q_heads or 1) // (attention.kv_heads or 1)
    head = t.floordiv(axes.h, t.integer(group))
    # A place in this operand: the keys of a cache are another's.
    place = t.symbol("k", t.ZERO, t.sub(shape[2] if len(shape) == 4 else shape[1], t.ONE))
    if len(shape) == 4:
        return axes.b, head, place, element
    if len(shape) == 5:
        return axes.b, place, head, t.ZERO, element
    return axes.b, place, t.add(t.mul(head, size), element)


def _given_mask(x: Interpreter, attention: Attention, mask: ir.Value) -> None:
    """Read a bool or additive mask that broadcasts to [B, H, Q, K]; keys past its end are not attended."""
    axes, shape = attention.axes, x.shape(mask)
    index = rules.broadcast_index(shape, (axes.b, axes.h, axes.q, axes.k))
    length = shape[-1]
    if length is not axes.k_len and t.fixed(length) != 1:
        if not t.at_most(length, axes.k_len):
            _masked(x, attention, mask, index)
            return
        attention.attend.append((_before(axes, length), mask))
    _masked(x, attention, mask, index)


def _masked(x: Interpreter, attention: Attention, mask: ir.Value, index: Index) -> None:
    term = x.term(mask, index)
    if term.kind == "bool":
        attention.attend.append((term, mask))
        return
    added = split_added(term, attention.axes)
    attention.attend += [(attend, mask) for attend in added.attend]
    if any(math.isfinite(fill) for fill in added.fills):
        # By the specification such a row is weighed alike; ONNX Runtime makes it zero.
        attention.empty_rows = "unknown"
    attention.bias += [origin(x, part, mask, index) for part in added.bias]
    if added.bias:
        attention.addends.append(Addend(mask, index, tuple(added.bias)))


def _key_mask(x: Interpreter, attention: Attention, mask: ir.Value, *, starts: bool) -> None:
    """Read the integer mask of ONNX Runtime's operators.

    It is lengths [B], ones and zeros [B, K] or [B, Q, K], or, where the operator takes `starts`, the ends of the keys
    and then their starts [2 * B].
    """
    axes, shape = attention.axes, x.shape(mask)
    if kind_of(mask) != "int":
        raise NotFollowed(f"{describe(mask)} is no integer mask")
    if len(shape) == 1:
        batch = t.length(axes.b)
        both = starts and shape[0] is t.mul(t.integer(2), batch)
        if shape[0] is not batch and not both:
            raise NotFollowed(f"{describe(mask)} holds cumulative lengths, or is not as long as the batch")
        attention.attend.append((_before(axes, x.term(mask, (axes.b,))), mask))
        if both:
            first = x.term(mask, (t.add(batch, axes.b),))
            attention.attend.append((t.at_most_zero(t.sub(first, axes.k)), mask))
        return
    index = {2: (axes.b, axes.k), 3: (axes.b, axes.q, axes.k)}.get(len(shape))
    if index is None:
        raise NotFollowed(f"{describe(mask)} has rank {len(shape)}")
    if axes.past is not None and shape[-1] is axes.q_len:
        raise NotFollowed(f"{describe(mask)} says nothing of the keys in the cache")
    term = x.term(mask, rules.broadcast_index(shape, index))
    # The operators' rule is for ones and zeros: kernels read other numbers each in their own way.
    axes.assumes.update((atom.args[0], "binary") for atom in (term,) if atom.op == "load")
    attention.attend.append((t.to_bool(term), mask))


def _before(axes: Axes, length: Term) -> Term:
    """Return `k < length`."""
    return t.at_most_zero(t.add(t.sub(axes.k, length), t.ONE))


def _count(node: ir.Node, name: str) -> int:
    """Return a number of heads, which must be given."""
    count = int(_number(node, name, 0))
    if count < 1:
        raise NotFollowed(f"its {name} is {count}")
    return count


def _multi_head_attention(x: Interpreter, node: ir.Node) -> Attention:
    """com.microsoft MultiHeadAttention."""
    query, key = node.inputs[0], rules.optional(node, 1)
    assert query is not None
    heads = _count(node, "num_heads")
    if len(x.shape(query)) == 5:
        # [B, S, H, 3, D]: queries, keys and values packed.
        batch, q_len, _, _, size = x.shape(query)
        k_len = q_len
    else:
        if key is None:
            raise NotFollowed("its queries and keys are packed in a way that is not [B, S, H, 3, D]")
        batch, _, q_len, size = _heads_and_size(x, query, heads)
        shape = x.shape(key)
        k_len = shape[2] if len(shape) == 4 else shape[1]
    if rules.optional(node, 8) is not None:
        raise NotFollowed("its cache is a buffer, whose length says nothing of how many keys are in it")
    past_key = rules.optional(node, 6)
    past = x.shape(past_key)[2] if past_key is not None else None
    axes = _axes(x, batch, t.integer(heads), q_len, k_len if past is None else t.add(past, k_len), past)
    attention = _contrib(x, node, axes, heads, t.fixed(size), mask=4, bias=5, past=past)
    if key is not None:
        attention.key = key, _key_index(x, key, axes, attention)
    return attention


def _contrib(
    x: Interpreter, node: ir.Node, axes: Axes, heads: int, size: int | None, *, mask: int, bias: int, past: Term | None
) -> Attention:
    scale = _number(node, "scale", 0.0) or (size**-0.5 if size else math.nan)
    attention = Attention(axes, heads, heads, size, scale, cross=past is None and axes.q_len is not axes.k_len)
    # An integer mask is added as -10000: a row without keys is the softmax over its unmasked scores.
    attention.empty_rows = "unknown"
    if _number(node, "unidirectional", 0):
        if attention.cross:
            raise NotFollowed("it is unidirectional over keys of another length, which CPU and CUDA align differently")
        attention.attend.append((_causal(axes, past or t.ZERO), None))
    if (key_mask := rules.optional(node, mask)) is not None:
        if (fill := _number(node, "mask_filter_value", -1e4)) > LARGEST_FILL:
            raise Faulty("weak", f"a fill of {fill:g} is too small to mask: its keys keep weight")
        _key_mask(x, attention, key_mask, starts=node.op_type == "Attention")
    if (added := rules.optional(node, bias)) is not None:
        _masked(x, attention, added, rules.broadcast_index(x.shape(added), (axes.b, axes.h, axes.q, axes.k)))
    return attention


def _contrib_attention(x: Interpreter, node: ir.Node) -> Attention:
    """com.microsoft Attention: packed projections are inside."""
    data, weights = node.inputs[:2]
    assert data is not None
    assert weights is not None
    heads = _count(node, "num_heads")
    batch, q_len = x.shape(data)[:2]
    if _number(node, "past_present_share_buffer", 0):
        raise NotFollowed("its cache is a buffer, whose length says nothing of how many keys are in it")
    past_value = rules.optional(node, 4)
    past = x.shape(past_value)[3] if past_value is not None else None
    axes = _axes(x, batch, t.integer(heads), q_len, q_len if past is None else t.add(past, q_len), past)
    sizes = node.attributes.get("qkv_hidden_sizes")
    width = sizes.as_ints()[0] if sizes is not None else (t.fixed(x.shape(weights)[1]) or 0) // 3
    if width % heads:
        raise NotFollowed(f"its {width} columns of queries are not divided by {heads} heads")
    return _contrib(x, node, axes, heads, width // heads or None, mask=3, bias=5, past=past)


def _group_query_attention(x: Interpreter, node: ir.Node) -> Attention:
    """com.microsoft GroupQueryAttention: `seqlens_k` is each row's number of keys less one."""
    query, key, lengths = node.inputs[0], rules.optional(node, 1), rules.optional(node, 5)
    assert query is not None
    assert lengths is not None
    if _number(node, "sliding_window_cache", 0):
        raise NotFollowed("its cache drops the oldest keys, so that a key's place is not its position")
    if _number(node, "smooth_softmax", 0):
        raise NotFollowed("its smooth_softmax is a sink of 0, which no value of the graph holds")
    heads, groups = _count(node, "num_heads"), _count(node, "kv_num_heads")
    if heads % groups:
        raise NotFollowed(f"its {heads} heads don't share {groups} key heads evenly")
    batch, q_len, width = x.shape(query)
    packed = key is None
    size = t.exact_quotient(width, t.integer(heads + 2 * groups if packed else heads))
    past_key = rules.optional(node, 3)
    k_len = q_len if past_key is None else x.dimension(f"{node.outputs[0].name}.total")
    axes = _axes(x, batch, t.integer(heads), q_len, k_len, None)
    head_size = None if size is None else t.fixed(size)
    scale = _number(node, "scale", 0.0) or (head_size**-0.5 if head_size else math.nan)
    attention = Attention(axes, heads, groups, head_size, scale, _number(node, "softcap", 0.0))
    length = t.add(x.term(lengths, (axes.b,)), t.ONE)
    offset = t.ZERO if past_key is None else t.sub(length, q_len)
    attention.attend.append((_before(axes, length), lengths))
    if _number(node, "causal", 1):
        attention.attend.append((_causal(axes, offset), None))
        window = int(_number(node, "local_window_size", -1))
        if window == 0:
            raise NotFollowed("its window keeps no key")
        if window > 0:
            # It counts the query's own key.
            oldest = t.sub(t.add(axes.q, offset), t.integer(window - 1))
            attention.attend.append((t.at_most_zero(t.sub(oldest, axes.k)), None))
    if (bias := rules.optional(node, 10)) is not None:
        _masked(x, attention, bias, rules.broadcast_index(x.shape(bias), (axes.b, axes.h, axes.q, axes.k)))
    if key is not None:
        attention.key = key, _key_index(x, key, axes, attention)
    attention.sink = rules.optional(node, 11)
    attention.empty_rows = "unknown"
    return attention


def _packed(x: Interpreter, node: ir.Node) -> Attention:
    raise NotFollowed("its rows are told apart by cumulative lengths, which no leaf reads")


_READERS: dict[tuple[str, str], Callable[[Interpreter, ir.Node], Attention]] = {
    ("", "Attention"): _onnx_attention,
    ("com.microsoft", "Attention"): _contrib_attention,
    ("com.microsoft", "MultiHeadAttention"): _multi_head_attention,
    ("com.microsoft", "GroupQueryAttention"): _group_query_attention,
    ("com.microsoft", "PackedMultiHeadAttention"): _packed,
    ("com.microsoft", "PackedAttention"): _packed,
}
