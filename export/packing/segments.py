"""Attention within segments on CUDA: by groups of tokens, so that no tensor says of every pair whether it attends.

Shapes: B batch, S sequence, G segments of all rows, L the longest, E = H * D.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass, replace

import onnx_ir as ir

from ...models.masks import Causal, Full, KeyPadding, Mask, past
from ..builder import MICROSOFT, Builder, like, take_over
from ..lowering.canonical import ATTENTION, DOMAIN, Inputs, Site, is_site
from ..symbolic.interpreter import Interpreter
from .groups import Groups, attend_groups, groups_of_segments
from .tokens import real_tokens

__all__ = ["group_segments", "split_segments"]

BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64
MEMBER = "member"
# Names of lengths that only the device knows.
GROUPS, SPAN = "maskport.groups", "maskport.span"


def split_segments(mask: Mask) -> tuple[str | None, Mask]:
    """Return the tensor of a mask's segments, if it has one, and what else the mask says."""
    conjuncts = list(mask.conjuncts)
    found = [one for one in conjuncts if str(one).startswith("segments(") and len(one.tensors) == 1]
    rest = [one for one in conjuncts if not found or one is not found[0]]
    name = next(iter(found[0].tensors)) if found else None
    return name, functools.reduce(operator.and_, rest, Full()).simplify()


@dataclass(frozen=True)
class _Grouped:
    """The tokens of all places, B * S, in groups: by what tensor, and where each is."""

    groups: Groups
    batch: ir.Value
    length: ir.Value
    row: ir.Value
    position: ir.Value


def group_segments(model: ir.Model, dtype: str | None) -> dict[str, tuple[str, str]]:
    """Write canonical attention within segments by groups of tokens, in place.

    What a mask says beside segments may be causal, a window and padding: such groups become rows of a batch, each the
    span from its first token to its last, where what lies between and is of another segment is padding; they stay
    canonical nodes.

    Returns
    -------
    dict of str to (str, str)
        What computes each attention that is none any more, and how.
    """
    x = Interpreter(model.graph)
    forms: dict[str, tuple[str, str]] = {}
    grouped: dict[ir.Value, _Grouped] = {}
    for node in [node for node in model.graph if is_site(node)]:
        site, inputs = Site.of(node), Inputs.of(node)
        segments, rest = split_segments(site.mask)
        if segments is None or site.cross or not all(map(_is_relative, rest.conjuncts)):
            continue
        if any(value is not None for value in (inputs.bias, inputs.sink, inputs.past_key)):
            continue
        if x.shape(inputs.query)[:2] != x.shape(inputs.key)[:2]:
            continue
        build = Builder(site.name)
        tensor = inputs.tensors[segments]
        if tensor not in grouped:
            grouped[tensor] = _group(build, tensor)
        tokens = grouped[tensor]
        flat = [
            build.op("Reshape", value, build.ints(-1, heads * size))
            for value, heads, size in (
                (inputs.query, site.q_heads, site.head_size),
                (inputs.key, site.kv_heads, site.head_size),
                (inputs.value, site.kv_heads, site.v_head_size),
            )
        ]
        if rest in (Full(), Causal()):
            result, kernel = attend_groups(build, tokens.groups, site, rest == Causal(), flat, dtype)
            forms[site.name] = kernel, f"tokens in groups of their own length, segments({segments})"
        else:
            result = _in_spans(build, site, inputs, tokens, tensor, rest, flat)
        made = build.op("Reshape", result, build.join(tokens.batch, tokens.length, build.ints(-1)))
        model.graph.insert_before(node, build.nodes)
        take_over(node.outputs[0], like(made, node.outputs[0]))
        model.graph.remove(node, safe=True)
        model.graph.opset_imports.setdefault(MICROSOFT, 1)
    return forms


def _is_relative(leaf: Mask) -> bool:
    """Return whether a leaf asks for the distance of query and key, or for the key's padding."""
    name, *arguments = leaf._expr
    if name in ("causal", "window"):
        return bool(arguments[-1] == past)
    return name in ("full", "padding")


def _group(build: Builder, tensor: ir.Value) -> _Grouped:
    batch, length = build.dimension(tensor, 0), build.dimension(tensor, 1)
    size = build.op("Squeeze", build.op("Mul", batch, length))
    places = build.op("Range", build.integer(0), size, build.integer(1), dtype=INT64)
    row, position = build.op("Div", places, length), build.op("Mod", places, length)
    groups = groups_of_segments(build, row, position, batch, length, tensor)
    return _Grouped(groups, batch, length, row, position)


def _in_spans(
    b: Builder, site: Site, inputs: Inputs, tokens: _Grouped, tensor: ir.Value, rest: Mask, flat: list[ir.Value]
) -> ir.Value:
    """Write the attention of spans, as a canonical node on [G, L, E]; return [B * S, Hq * Dv]."""
    groups, one = tokens.groups, b.integer(1)
    assert groups.order is not None
    assert groups.back is not None
    ordered = b.op("Gather", tokens.position, groups.order, axis=0)
    first = b.op("Gather", ordered, groups.starts, axis=0)
    last = b.op("Gather", ordered, b.op("Sub", groups.ends, one), axis=0)
    row = b.op("Gather", b.op("Gather", tokens.row, groups.order, axis=0), groups.starts, axis=0)
    longest = b.op("Add", b.op("ReduceMax", b.op("Sub", last, first), b.ints(0), keepdims=1), one)
    steps = b.op("Range", b.integer(0), b.op("Squeeze", longest), one, dtype=INT64)
    column = b.ints(1)
    position = b.op("Add", b.op("Unsqueeze", first, column), steps)
    inside = b.op("LessOrEqual", position, b.op("Unsqueeze", last, column), dtype=BOOL)
    position = b.op("Min", position, b.op("Unsqueeze", last, column))
    start = b.op("Mul", row, tokens.length)
    place = b.op("Add", b.op("Unsqueeze", start, column), position)
    id_of = b.op("Reshape", tensor, b.ints(-1))
    own = b.op("Unsqueeze", b.op("Gather", id_of, b.op("Add", start, first), axis=0), column)
    member = b.op("And", inside, b.op("Equal", b.op("Gather", id_of, place, axis=0), own, dtype=BOOL))
    said = []
    for leaf in rest.conjuncts:
        if leaf._expr[0] != "padding":
            said.append(leaf)
            continue
        _, name, pad = leaf._expr
        value = b.op("Gather", b.op("Reshape", inputs.tensors[name], b.ints(-1)), place, axis=0)
        member = b.op("And", member, real_tokens(b, value, pad))
    member.shape = ir.Shape([GROUPS, SPAN])
    mask = functools.reduce(operator.and_, said, KeyPadding(MEMBER)).simplify()
    spanned = replace(site, mask=mask, tensors=(MEMBER,))
    operands = [b.op("Gather", value, place, axis=0) for value in flat]
    for operand, width in zip(operands, (site.q_heads, site.kv_heads), strict=False):
        operand.shape = ir.Shape([GROUPS, SPAN, width * site.head_size])
    operands[2].shape = ir.Shape([GROUPS, SPAN, site.kv_heads * site.v_head_size])
    attended = b.op(
        ATTENTION, *operands, None, None, None, None, member, domain=DOMAIN, dtype=flat[0].dtype, **spanned.attributes()
    )
    attended.shape = ir.Shape([GROUPS, SPAN, site.q_heads * site.v_head_size])
    group = b.op("Gather", groups.of_token, groups.back, axis=0)
    within = b.op("Sub", tokens.position, b.op("Gather", first, group, axis=0))
    result = b.op("Reshape", attended, b.ints(-1, site.q_heads * site.v_head_size))
    return b.op("Gather", result, b.op("Add", b.op("Mul", group, longest), within), axis=0)
