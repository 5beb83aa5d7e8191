"""Stop computing padding: the part of a model that treats each token alike runs on the real tokens only."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir
import onnx_ir.passes.common as passes

from ...models.masks import Full, KeyPadding, Mask, QueryPadding
from ..builder import MICROSOFT, Builder
from ..lowering.canonical import Inputs, Site, is_site
from ..lowering.targets import Target
from ..passes import UniqueNamesPass
from ..symbolic import terms as t
from ..symbolic.interpreter import Interpreter, deep_stack
from ..symbolic.values import NotFollowed
from .device import Device
from .exits import Exit, Refused, leave
from .host_inputs import describe_packing
from .host_tokens import host_tokens_of
from .member import Member
from .packer import Mismatch, Packed, Packer, Roles
from .places import on_all_places
from .rows import Rows
from .rules import pack_node
from .tokens import tokens_of, write_extra

__all__ = ["Packing", "pack", "padding_masks"]

# That of ai.onnx Attention with lengths.
OPSET = 24


@dataclass(frozen=True)
class Packing:
    """What was packed.

    Attributes
    ----------
    mask : str
        The padding that is left out: ``padding(attention_mask)``.
    sites : dict of str to (str, str)
        What computes each attention that is computed on tokens, and how.
    why_not : str or None
        Why nothing was packed.
    """

    mask: str
    sites: dict[str, tuple[str, str]]
    why_not: str | None = None


def pack(model: ir.Model, target: Target, *, host: bool = False) -> tuple[ir.Model, list[Packing]]:
    """Pack the tokens of every padding mask of a model with canonical attention.

    Attention that no packed form takes is left as a canonical node on all places, between packed parts.

    Parameters
    ----------
    host : bool
        Whether the tokens are told by more inputs, which `maskport.packing` of the metadata names; for CUDA.

    Returns
    -------
    model : ir.Model
        A new model, or the same if nothing was packed.
    packings : list of Packing
        Of each padding mask, what was packed, or why its tokens can't be.
    """
    results: list[Packing] = []
    for padding in padding_masks(model):
        try:
            with deep_stack():
                candidate, forms = _pack_domain(model, padding, target, host)
        except (Refused, NotFollowed, Mismatch, t.TooLarge, RecursionError) as error:
            results.append(Packing(str(padding), {}, str(error) or type(error).__name__))
            continue
        passes.RemoveUnusedNodesPass()(candidate)
        candidate.graph.sort()
        UniqueNamesPass()(candidate)
        model = candidate
        results.append(Packing(str(padding), forms))
    return model, results


def padding_masks(model: ir.Model) -> list[Mask]:
    """Return the padding masks of attention within one sequence, in the graph's order."""
    found: dict[str, Mask] = {}
    for node in model.graph:
        if is_site(node):
            site = Site.of(node)
            if not site.cross:
                for leaf in site.mask.leaves:
                    if str(leaf).startswith("padding(") and site.mask.implies(leaf):
                        found.setdefault(str(leaf), leaf)
    return list(found.values())


def _residual(mask: Mask, name: str, pad: int) -> Mask:
    """Return what a mask says beside padding, for queries that are real tokens."""
    left = list(mask.conjuncts)
    known = KeyPadding(name, pad=pad) & QueryPadding(name, pad=pad)
    for conjunct in list(left):
        others = [other for other in left if other is not conjunct]
        if functools.reduce(operator.and_, others, known).implies(conjunct):
            left = others
    return functools.reduce(operator.and_, left, Full()).simplify() if left else Full()


def _members(model: ir.Model, x: Interpreter, padding: Mask, mask: ir.Value) -> Iterator[Member]:
    shape = x.shape(mask)
    (name,) = padding.tensors
    pad = padding._expr[2]
    for node in model.graph:
        if not is_site(node):
            continue
        site, inputs = Site.of(node), Inputs.of(node)
        if site.cross or inputs.past_key is not None or not site.mask.implies(padding):
            continue
        if {x.shape(operand)[:2] for operand in (inputs.query, inputs.key, inputs.value)} != {shape}:
            continue
        if inputs.tensors.get(name) is not None:
            yield Member(node, site, _residual(site.mask, name, pad))


class _PicksPlaces(Exception):
    """Outputs pick tokens by their place, so that some are kept that are no keys."""


def _pack_domain(
    model: ir.Model, padding: Mask, target: Target, host: bool
) -> tuple[ir.Model, dict[str, tuple[str, str]]]:
    try:
        return _packed(model.clone(), padding, target, host, extras=False)
    except _PicksPlaces:
        return _packed(model.clone(), padding, target, host, extras=True)


def _packed(
    model: ir.Model, padding: Mask, target: Target, host: bool, *, extras: bool
) -> tuple[ir.Model, dict[str, tuple[str, str]]]:
    graph = model.graph
    if graph.opset_imports.get("", 0) < OPSET:
        raise Refused(f"the model is at opset {graph.opset_imports.get('', 0)}, and packed attention is from {OPSET}")
    x = Interpreter(graph)
    (name,) = padding.tensors
    masks = (
        Inputs.of(node).tensors[name]
        for node in graph
        if is_site(node) and name in Site.of(node).tensors and Site.of(node).mask.implies(padding)
    )
    mask = next(masks, None)
    if mask is None:
        raise Refused("all attention that has this mask is packed by another")
    batch, length = x.shape(mask)
    if batch is length or t.fixed(length) == 1:
        raise Refused("the batch and the sequence can't be told apart")
    members = {member.node: member for member in _members(model, x, padding, mask)}
    if not members:
        raise Refused("no attention within the sequence has this mask for all of its keys")
    build = Builder()
    pad = padding._expr[2]
    tokens = host_tokens_of(build, graph, mask, pad) if host else tokens_of(build, mask, pad)
    packer = Packer(x, tokens, batch, length, build, f"tokens_of_{mask.name}")
    attend = Rows(packer) if target.provider == "cpu" else Device(packer, target.dtype, extras=extras)
    exits: list[Exit] = []
    forms: dict[str, tuple[str, str]] = {}
    for node in list(graph):
        if node in members:
            forms[members[node].site.name] = _pack_attention(packer, members[node], attend)
            continue
        if is_site(node) and _has_packed_queries(packer, node):
            copy = _pack_queries(packer, node)
            exits += [Exit(copy, place) for place in (1, 2) if copy.inputs[place] in packer.packed]
            continue
        inside = [value for value in node.inputs if value in packer.packed]
        if inside and not _pack_outputs(packer, node):
            exits += [Exit(node, place) for place, value in enumerate(node.inputs) if value in packer.packed]
    places = leave(packer, graph, exits, [member.residual for member in members.values()], padding)
    if places and not extras:
        raise _PicksPlaces
    if host:
        describe_packing(model, str(mask.name), padding, places)
    else:
        ir.convenience.replace_all_uses_with(tokens.extra, write_extra(build, tokens, places))
    graph.extend(build.nodes)
    graph.sort()
    if target.provider == "cuda":
        graph.opset_imports.setdefault(MICROSOFT, 1)
    return model, forms


def _pack_attention(p: Packer, member: Member, attend: Rows | Device) -> tuple[str, str]:
    """Pack an attention; return the operator and how it is told the mask."""
    inputs = Inputs.of(member.node)
    roles = Roles(0, 1)
    operands = [p.pull(value, roles) for value in (inputs.query, inputs.key, inputs.value)]
    if not all(one.by_token for one in operands):
        raise Refused(f"queries, keys or values of {member.site.name} are the same for all tokens")
    if any(value in p.packed for value in (*inputs.tensors.values(), inputs.bias) if value is not None):
        raise Refused(f"the mask or bias of {member.site.name} is computed from tokens")
    if inputs.bias is not None:
        known = (p.batch, t.integer(member.site.q_heads), p.length, p.length)
        if any(n is not whole and t.fixed(n) != 1 for n, whole in zip(p.shape(inputs.bias), known, strict=True)):
            raise Refused(f"the bias of {member.site.name} has lengths that are not known")
    result, kernel, why = attend(member, inputs, operands)
    output = member.node.outputs[0]
    p.note(output, roles, Packed(result, p.shape(output)[2:], by_token=True, inside=True))
    return kernel, why


def _has_packed_queries(p: Packer, node: ir.Node) -> bool:
    """Return whether only an attention's queries, keys and values are packed: each result is one query's."""
    query = node.inputs[0]
    rest = node.inputs[3:]
    known = query is not None and query in p.packed and p.packed[query][0] == Roles(0, 1)
    return known and len(node.outputs) == 1 and not any(value in p.packed for value in rest if value is not None)


def _pack_queries(p: Packer, node: ir.Node) -> ir.Node:
    """Write an attention of another sequence, or with another mask, on all places."""
    query, key, value = node.inputs[:3]
    assert query is not None
    assert key is not None
    assert value is not None
    roles, packed = p.packed[query]
    copy, picked = on_all_places(p, node, [p.scattered(packed, roles, zero=False), key, value])
    output = node.outputs[0]
    p.note(output, roles, Packed(picked, p.shape(output)[2:], by_token=True, inside=True))
    return copy


def _pack_outputs(p: Packer, node: ir.Node) -> bool:
    """Pack what a node computes; false if it must have its inputs as they were."""
    for value in node.outputs:
        if value in p.packed:
            continue
        if not list(value.uses()) and not value.is_graph_output():
            continue
        try:
            shape = p.shape(value)
        except NotFollowed:
            return False
        if not any(_try(p, node, value, roles) for roles in p.candidates(shape)):
            return False
    return True


def _try(p: Packer, node: ir.Node, value: ir.Value, roles: Roles) -> bool:
    try:
        packed = pack_node(p, node, value, roles)
    except (Mismatch, NotFollowed):
        return False
    if packed is None or not (packed.by_token and packed.inside):
        return False
    p.note(value, roles, packed)
    return True
