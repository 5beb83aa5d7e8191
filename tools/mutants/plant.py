"""One attention of a model, written anew with a fault in it.

The attention is brought to the canonical form, in which its mask is an expression; a fault is another expression,
another input or another attribute. It is then written out as MatMul and Softmax, where faults of the fill are planted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir
import onnx_ir.passes.common as passes

from ...export.builder import Builder, like, take_over
from ...export.inspector import find_attention
from ...export.lowering.canonical import ATTENTION, DOMAIN, Inputs, Site, canonicalize, is_site
from ...export.lowering.costs import Costs
from ...export.lowering.lower import lower
from ...export.lowering.targets import Target
from ...export.sites_metadata import SITE_KEY
from ...models.masks import Mask

# Operators that leave the numbers of their first input as they are.
MOVES = ("Reshape", "Transpose", "Identity", "Squeeze", "Unsqueeze")
# No bias is as low that is no mask.
HIDES = -9e3
# Every other way to compute it costs more than can be said.
DECOMPOSED_ALONE = Costs(((8, 256),), {"cpu": {"decomposed": 1.0}})


@dataclass(frozen=True)
class Planted:
    """A canonical attention that is being changed: what it says, what it reads, and where nodes are added.

    Attributes
    ----------
    site, inputs
        Attributes and inputs of the canonical node.
    b
        Takes the nodes that a fault adds before it.
    result
        What is done to the result at last; None for nothing.
    """

    site: Site
    inputs: Inputs
    b: Builder
    result: Callable[[Builder, ir.Value], ir.Value] | None = None

    def masked(self, mask: Mask, more: Mapping[str, ir.Value] | None = None) -> Planted:
        """Return it with another mask; `more` are tensors that it didn't read before."""
        mask = mask.simplify()
        known = {**self.inputs.tensors, **(more or {})}
        tensors = {name: known[name] for name in mask.tensors}
        return replace(
            self,
            site=replace(self.site, mask=mask, tensors=tuple(tensors)),
            inputs=replace(self.inputs, tensors=tensors),
        )

    def reading(self, tensors: Mapping[str, ir.Value]) -> Planted:
        """Return it with the same mask, read from other values."""
        return replace(self, inputs=replace(self.inputs, tensors={**self.inputs.tensors, **tensors}))


@dataclass(frozen=True)
class Scores:
    """The scores of an attention that was written out: before and behind its mask, and what the Softmax takes.

    Attributes
    ----------
    attend
        The mask, bool; None if it masks nothing.
    before, masked
        The scores without and with the mask.
    softcap
        Of the attention, or 0.
    """

    attend: ir.Value
    before: ir.Value
    masked: ir.Value
    softcap: float


Change = Callable[[Planted], Planted | None]
Rewrite = Callable[[Builder, Scores], ir.Value | None]


@dataclass(frozen=True)
class Ground:
    """A model with one canonical attention, in which faults are planted."""

    model: ir.Model
    name: str

    @property
    def rows_are_replaced(self) -> bool:
        """Whether a Where takes the place of some rows of the result before anything else reads them."""
        value = next(node for node in self.model.graph if is_site(node)).outputs[0]
        while len(users := list(value.uses())) == 1:
            node, place = users[0]
            if node.op_type == "Where":
                return place > 0
            if node.op_type not in MOVES:
                return False
            value = node.outputs[0]
        return False

    @classmethod
    def each(cls, model: ir.Model) -> Iterator[Ground]:
        """Yield one for each attention of a model that can be written anew, in the graph's order."""
        work = _prepared(model)
        attention = find_attention(work, check=False)
        nodes, _ = canonicalize(work, attention.sites, attention.names)
        for name in [Site.of(node).name for node in nodes]:
            work = _prepared(model)
            attention = find_attention(work, check=False)
            chosen = [site for site in attention.sites if attention.names[site.node] == name]
            # What rows without a key give is part of what is tried.
            canonicalize(work, chosen, attention.names, keep_keyless=False)
            yield cls(work, name)

    def plant(self, change: Change, rewrite: Rewrite | None = None) -> tuple[ir.Model, Site, Site] | None:
        """Return the model with a fault in its attention, and what that was and became; None if it can't have it.

        Parameters
        ----------
        change : callable
            Changes the canonical attention; returns None if it doesn't apply.
        rewrite : callable, optional
            Changes the scores that were written out; returns None if it doesn't apply.
        """
        work = self.model.clone()
        node = next(node for node in work.graph if is_site(node))
        before = Site.of(node)
        planted = change(_with_plain_bias(Planted(before, Inputs.of(node), Builder())))
        if planted is None:
            return None
        _replace(node, planted)
        lower(work, Target.parse("cpu"), padding_rows="keep", costs=DECOMPOSED_ALONE)
        if rewrite is not None and not _rewrite(work, planted.site, rewrite):
            return None
        passes.RemoveUnusedNodesPass()(work)
        return work, before, planted.site


def _with_plain_bias(planted: Planted) -> Planted:
    """Return it with a bias that doesn't mask, too: what hides a key there is 0, and the mask is what says it."""
    b, bias = planted.b, planted.inputs.bias
    if bias is None or bias.dtype is None:
        return planted
    dtype = bias.dtype.numpy()
    hides = b.op("Less", bias, b.constant(HIDES, dtype), dtype=ir.DataType.BOOL)
    plain = b.op("Where", hides, b.constant(0, dtype), bias, dtype=bias.dtype)
    plain.shape = bias.shape
    return replace(planted, inputs=replace(planted.inputs, bias=plain))


def _prepared(model: ir.Model) -> ir.Model:
    work = model.clone()
    passes.InlinePass()(work)
    return work


def _replace(node: ir.Node, planted: Planted) -> None:
    """Put the changed attention in the place of the canonical node."""
    b, inputs = planted.b, planted.inputs
    fixed = (inputs.query, inputs.key, inputs.value, inputs.bias, inputs.sink, inputs.past_key, inputs.past_value)
    tensors = [inputs.tensors[name] for name in planted.site.tensors]
    outputs: Sequence[ir.Value] = b.outputs(
        len(node.outputs),
        ATTENTION,
        *fixed,
        *tensors,
        domain=DOMAIN,
        dtype=node.outputs[0].dtype,
        **planted.site.attributes(),
    )
    made = outputs[0].producer()
    assert made is not None
    made.metadata_props.update(node.metadata_props)
    for old, new in zip(node.outputs, outputs, strict=True):
        new.shape = old.shape
    result = outputs[0]
    if planted.result is not None:
        result.shape = None
        result = planted.result(b, result)
        result.shape = node.outputs[0].shape
    assert node.graph is not None
    graph = node.graph
    graph.insert_before(node, b.nodes)
    for old, new in zip(node.outputs, (result, *outputs[1:]), strict=True):
        take_over(old, new)
    graph.remove(node, safe=True)


def _rewrite(model: ir.Model, site: Site, rewrite: Rewrite) -> bool:
    """Put other scores in the place of the masked ones."""
    where = [
        node
        for node in model.graph
        if node.op_type == "Where" and node.metadata_props.get(SITE_KEY) == site.name and _is_softmaxed(node.outputs[0])
    ]
    if len(where) != 1:
        return False
    attend, before, _ = where[0].inputs
    masked = where[0].outputs[0]
    assert attend is not None
    assert before is not None
    users = [(user, place) for user, place in masked.uses()]
    b = Builder()
    scores = rewrite(b, Scores(attend, before, masked, site.softcap))
    if scores is None:
        return False
    like(scores, masked)
    model.graph.insert_after(where[0], b.nodes)
    for user, place in users:
        user.replace_input_with(place, scores)
    return True


def _is_softmaxed(value: ir.Value) -> bool:
    """Whether a value goes to a Softmax, with or without a sink beside it."""
    users = [user for user, _ in value.uses()]
    beside = [user for node in users if node.op_type == "Concat" for user, _ in node.outputs[0].uses()]
    return any(user.op_type == "Softmax" for user in (*users, *beside))
