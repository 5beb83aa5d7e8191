"""Every attention that was understood becomes one node, `maskport::Attention`, whatever wrote it.

The node lives only inside the optimizer. Shapes: B batch, Q queries, K keys, H heads, D size of a head.

inputs      query [B, Q, Hq * D], key [B, K, Hkv * D], value [B, K, Hkv * Dv], bias (broadcastable to [B, Hq, Q, K]),
            sink [Hq], past_key and past_value [B, Hkv, P, D], then the tensors of the mask
outputs     [B, Q, Hq * Dv]; with a cache also present_key and present_value [B, Hkv, P + K, D]
attributes  see `Site`; a query's head h reads the keys' head h // (Hq // Hkv)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import onnx_ir as ir
import onnx_ir.passes.common as passes

from ...models.masks import Mask
from ..builder import Builder, like, take_over
from ..sites_metadata import SITE_KEY
from ..symbolic import rules, sites
from ..symbolic import terms as t
from ..symbolic.interpreter import Interpreter, deep_stack
from ..symbolic.terms import Term
from ..symbolic.values import Index, NotFollowed, describe
from .keyless import KeylessRows, refusal
from .operands import Located, Operands, Result, operands_of

__all__ = ["ATTENTION", "DOMAIN", "Inputs", "Site", "canonicalize", "is_site"]

DOMAIN, ATTENTION = "maskport", "Attention"
# The mask's tensors come after these.
FIXED_INPUTS = ("query", "key", "value", "bias", "sink", "past_key", "past_value")
# Beside a score the lowest numbers are all the same, and their sums must stay finite.
LOWEST = {ir.DataType.FLOAT16: -3e4}


@dataclass(frozen=True)
class Site:
    """What the attributes of a canonical node say.

    Attributes
    ----------
    name, form : str
        The attention's name, and what it was: "decomposed" or an operator.
    mask : Mask
        Which keys a query attends; `tensors`, the names in it, in the order of the node's last inputs.
    q_heads, kv_heads, head_size, v_head_size : int
        Hq, Hkv, D of queries and keys, D of values.
    scale, softcap : float
        Factor of the scores, and their bound or 0.
    empty_rows : str
        What the source gives for a row without keys: "zero", "mean", "nan" or "unknown".
    cross : bool
        Whether keys come from another sequence.
    """

    name: str
    form: str
    mask: Mask
    tensors: tuple[str, ...]
    q_heads: int
    kv_heads: int
    head_size: int
    v_head_size: int
    scale: float
    softcap: float
    empty_rows: str
    cross: bool

    def attributes(self) -> dict[str, Any]:
        """Return the node's attributes."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = values.pop("tensors")
        values |= {"mask": str(self.mask), "cross": int(self.cross)}
        # A list without elements has no type.
        return values | ({"mask_tensors": list(tensors)} if tensors else {})

    @classmethod
    def of(cls, node: ir.Node) -> Site:
        """Read a node's attributes."""
        values = {name: attribute.value for name, attribute in node.attributes.items()}
        tensors = tuple(values.pop("mask_tensors", ()))
        values |= {"mask": Mask.parse(values["mask"]), "cross": bool(values["cross"])}
        return cls(tensors=tensors, **values)


@dataclass(frozen=True)
class Inputs:
    """The inputs of a canonical node, by name."""

    query: ir.Value
    key: ir.Value
    value: ir.Value
    bias: ir.Value | None
    sink: ir.Value | None
    past_key: ir.Value | None
    past_value: ir.Value | None
    tensors: dict[str, ir.Value]

    @classmethod
    def of(cls, node: ir.Node) -> Inputs:
        """Read a node's inputs."""
        names = Site.of(node).tensors
        # Inputs that are left out at the end need not be there.
        given = [*node.inputs, *[None] * (len(FIXED_INPUTS) - len(node.inputs))]
        fixed, rest = given[: len(FIXED_INPUTS)], given[len(FIXED_INPUTS) :]
        tensors = {name: value for name, value in zip(names, rest, strict=True) if value is not None}
        query, key, value, bias, sink, past_key, past_value = fixed
        assert query is not None
        assert key is not None
        assert value is not None
        return cls(query, key, value, bias, sink, past_key, past_value, tensors)


def is_site(node: ir.Node) -> bool:
    """Return whether a node is a canonical attention."""
    return (node.domain, node.op_type) == (DOMAIN, ATTENTION)


def canonicalize(
    model: ir.Model, found: Sequence[sites.Site], names: dict[ir.Node, str], *, keep_keyless: bool = True
) -> tuple[list[ir.Node], dict[str, str]]:
    """Replace attention by canonical nodes, in place.

    Parameters
    ----------
    model : ir.Model
        The model that the sites were found in.
    found : sequence of Site
        What `find_sites` found, and `verify` did not refuse.
    names : dict
        The name of each site, by its node.
    keep_keyless : bool
        Whether rows without a key are to give what the source gives where others read them.

    Returns
    -------
    nodes : list of ir.Node
        The canonical nodes, in the graph's order.
    refused : dict
        Why a site was left as it was, by its name.
    """
    plans: list[tuple[sites.Site, _Plan]] = []
    refused: dict[str, str] = {}
    for site in found:
        # The graph is only changed when all is read: values that are replaced can't be followed any more.
        try:
            with deep_stack():
                plans.append((site, _plan(site, names[site.node])))
        except (NotFollowed, t.TooLarge, RecursionError) as error:
            refused[names[site.node]] = str(error) or type(error).__name__
    keyless = KeylessRows() if keep_keyless else None
    nodes = [_replace(site, plan, keyless) for site, plan in plans]
    if nodes:
        model.graph.opset_imports.setdefault(DOMAIN, 1)
        passes.RemoveUnusedNodesPass()(model)
    return nodes, refused


@dataclass(frozen=True)
class _Plan:
    site: Site
    operands: Operands
    bias: tuple[_Part, ...]
    sink: ir.Value | None
    tensors: tuple[ir.Value, ...]
    result_dims: tuple[int | str | None, ...]


def _plan(site: sites.Site, name: str) -> _Plan:
    x = site.interpreter
    operands = operands_of(site)
    mask = site.mask.simplify()
    named = {}
    for tensor, spec in mask.tensors.items():
        value = x.by_name.get(tensor)
        if value is None:
            raise NotFollowed(f"the tensor {tensor!r} of its mask is no value of the graph")
        if spec.rank is not None and value.shape is not None and len(value.shape) != spec.rank:
            raise NotFollowed(f"the tensor {tensor!r} of its mask has rank {len(value.shape)}, not {spec.rank}")
        named[tensor] = value
    assert site.q_heads is not None
    described = Site(
        name,
        site.form,
        mask,
        tuple(named),
        site.q_heads,
        operands.kv_heads,
        operands.head_size,
        operands.v_head_size,
        operands.scale,
        site.softcap,
        site.empty_rows,
        site.cross,
    )
    reason = refusal(described, cached=operands.cache is not None)
    if reason is not None:
        raise NotFollowed(reason)
    batch = t.length(site.axes.b)
    # A mask whose lengths are not known leaves those of the scores unknown; the queries tell their own.
    located = operands.query
    length = x.shape(located.value)[2 if located.layout == "BHSD" else 1]
    dims = (_dim(batch), _dim(length), site.q_heads * operands.v_head_size)
    return _Plan(described, operands, _bias(site), _sink(site), tuple(named.values()), dims)


def _dim(length: Term) -> int | str | None:
    fixed = t.fixed(length)
    if fixed is not None:
        return fixed
    return str(length.args[0]) if length.op == "symbol" else None


@dataclass(frozen=True)
class _Part:
    """A value that is added to scores; `fills` says that it masks, too, and `negated` that it was subtracted."""

    value: ir.Value
    fills: bool = False
    negated: bool = False


def _bias(site: sites.Site) -> tuple[_Part, ...]:
    """Return what is added to scores beside the mask."""
    assert site.read is not None
    x = site.interpreter
    found: list[_Part] = []
    for addend in site.read.addends:
        atoms = {atom for term in addend.bias for atom in t.atoms_of(term)}
        if site.axes.k not in atoms and site.sink is None:
            # What all keys share changes no weight.
            continue
        parts = [_addend(x, addend.value, addend.index, term) for term in addend.bias]
        if not addend.negated and all(part is not None for part in parts):
            found += [_Part(part) for part in parts if part is not None]
        else:
            found.append(_Part(addend.value, fills=True, negated=addend.negated))
    return tuple(dict.fromkeys(found))


def _addend(x: Interpreter, value: ir.Value, index: Index, term: Term) -> ir.Value | None:
    """Return the addend of a value that is a bias alone."""
    waiting = [value]
    for addend in waiting:
        if len(waiting) > 32:
            return None
        if x.term(addend, rules.broadcast_index(x.shape(addend), index)) is term:
            return addend
        node = addend.producer()
        if node is not None and node.op_type in ("Add", "Identity"):
            waiting += [v for v in node.inputs if v is not None]
    return None


def _sink(site: sites.Site) -> ir.Value | None:
    if site.read is None or site.read.sink is None:
        return None
    x, sink, axes = site.interpreter, site.read.sink, site.axes
    index = (axes.h,) if len(x.shape(sink)) == 1 else (axes.b, axes.h, axes.q, t.ZERO)
    for place in sites.places(x, sink, index):
        # One number for each head, whatever axes of length 1 are around.
        shape = x.shape(place.value)
        heads = [i for i, n in zip(place.index, shape, strict=True) if t.fixed(n) != 1]
        if place.scale == 1 and heads == [axes.h]:
            return place.value
    raise NotFollowed(f"its sink {describe(sink)} is not one number for each head")


def _replace(site: sites.Site, plan: _Plan, keyless: KeylessRows | None) -> ir.Node:
    """Put the canonical node before what makes the result, and let it make the result."""
    operands, described = plan.operands, plan.site
    b = Builder()
    cache = operands.cache
    inputs: list[ir.Value | None] = [
        _to_bse(b, operands.query, described.q_heads, described.head_size),
        _to_bse(b, operands.key, described.kv_heads, described.head_size),
        _to_bse(b, operands.value, described.kv_heads, described.v_head_size),
        _joined_bias(b, site.interpreter, plan.bias, described.q_heads),
        None if plan.sink is None else b.op("Reshape", plan.sink, b.ints(-1), shape=[described.q_heads]),
        None if cache is None else cache.past_key,
        None if cache is None else cache.past_value,
        *plan.tensors,
    ]
    replaced = operands.result.value
    output, *presents = b.outputs(
        1 if cache is None else 3,
        ATTENTION,
        *inputs,
        domain=DOMAIN,
        dtype=replaced.dtype,
        **described.attributes(),
    )
    output.shape = ir.Shape(plan.result_dims)
    node, producer = output.producer(), replaced.producer()
    assert node is not None
    assert producer is not None
    assert producer.graph is not None
    node.metadata_props[SITE_KEY] = described.name
    result = output if keyless is None else keyless(b, described, inputs, output)
    made = _from_bse(b, result, operands.result, described)
    if made is not output:
        made = like(made, replaced)
    for new in b.nodes:
        new.metadata_props.update({k: v for k, v in site.node.metadata_props.items() if k.startswith("pkg.")})
    producer.graph.insert_before(producer, b.nodes)
    take_over(replaced, made)
    if cache is not None:
        for old, new_value in zip((cache.present_key, cache.present_value), presents, strict=True):
            if old is not None:
                take_over(old, like(new_value, old))
    return node


def _to_bse(b: Builder, located: Located, heads: int, size: int) -> ir.Value:
    """Return [B, S, H * D] of an operand."""
    value, layout = located.value, located.layout
    if layout in ("BSE", "BSD"):
        return value
    dims = list(value.shape) if value.shape is not None else [None] * 4
    batch, length = dims[0], dims[2 if layout == "BHSD" else 1]
    if layout == "(BH)SD":
        rest = b.op("Shape", value, dtype=ir.DataType.INT64, start=1)
        value, batch = b.op("Reshape", value, b.join(b.ints(-1, heads), rest)), None
    if layout != "BSHD":
        value = b.op("Transpose", value, perm=[0, 2, 1, 3])
    return b.op("Reshape", value, b.ints(0, 0, heads * size), shape=[batch, length, heads * size])


def _from_bse(b: Builder, value: ir.Value, result: Result, site: Site) -> ir.Value:
    """Return the result in the layout that it had."""
    if result.layout in ("BSE", "BSD"):
        return value
    if result.layout == "(BS)E":
        return b.op("Reshape", value, b.ints(-1, site.q_heads * site.v_head_size))
    value = b.op("Reshape", value, b.ints(0, 0, site.q_heads, site.v_head_size))
    if result.layout != "BSHD":
        value = b.op("Transpose", value, perm=[0, 2, 1, 3])
    if result.layout == "(BH)SD":
        rest = b.op("Shape", value, dtype=ir.DataType.INT64, start=2)
        value = b.op("Reshape", value, b.join(b.ints(-1), rest))
    return value


def _joined_bias(b: Builder, x: Interpreter, parts: Sequence[_Part], heads: int) -> ir.Value | None:
    """Return the sum of biases, [B or 1, H or 1, Q or 1, K or 1]."""
    total: ir.Value | None = None
    lengths: Index = ()
    for one in parts:
        part = value = one.value
        shape = x.shape(value)
        if len(shape) == 3 and t.fixed(shape[0]) != 1:
            batch = t.exact_quotient(shape[0], t.integer(heads))
            if batch is None:
                raise NotFollowed(f"the bias {describe(value)} is not one matrix for each head")
            rest = b.op("Shape", value, dtype=ir.DataType.INT64, start=1)
            part = b.op("Reshape", value, b.join(b.ints(-1, heads), rest))
            shape = (batch, t.integer(heads), *shape[1:])
        elif len(shape) < 4:
            part = b.op("Unsqueeze", value, b.ints(*range(4 - len(shape))))
            shape = (*[t.ONE] * (4 - len(shape)), *shape)
        if one.negated:
            part = b.op("Neg", part)
        if one.fills and value.dtype is not None:
            part = b.op("Max", part, b.constant(LOWEST.get(value.dtype, -1e30), value.dtype.numpy()))
        if total is not None:
            part, shape = b.op("Add", total, part), rules.broadcast_shape([lengths, shape])
        if part is not value:
            part.shape = ir.Shape([_dim(n) for n in shape])
        total, lengths = part, shape
    return total
