"""Every canonical attention becomes the best kernel of a target."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

import onnx_ir as ir

from ..builder import MICROSOFT
from .asked import Asked, parts
from .build import SiteBuilder
from .canonical import DOMAIN, is_site
from .costs import COSTS, TYPICAL, Costs, provider_of
from .emit import emit
from .facts import GRANTS, Grants
from .kernels import KERNELS, Kernel, refusals
from .masks import MaskWriter
from .simplify import simplify
from .targets import Target

__all__ = ["Lowered", "lower"]


@dataclass(frozen=True)
class Lowered:
    """What one attention became.

    Attributes
    ----------
    name, mask : str
        The site's name, and its mask as the graph had it.
    kernel : str
        The operator: its domain and name, or "decomposed".
    why : str
        What carries the mask, what was dropped of it, and on what grounds the kernel was chosen.
    refused : dict of str to list of str
        All reasons against each kernel that would have been better.
    assumes : list of dict
        Entries of `maskport.assumes`: input, check, axis and source.
    """

    name: str
    mask: str
    kernel: str
    why: str
    refused: dict[str, list[str]]
    assumes: list[dict[str, object]]


def lower(
    model: ir.Model,
    target: Target,
    *,
    padding_rows: str = "any",
    assume: Collection[str] = (),
    costs: Costs = COSTS,
) -> list[Lowered]:
    """Replace every canonical attention of a model's graph by the best kernel of a target, in place.

    Parameters
    ----------
    model : ir.Model
        Its graph may hold nodes `maskport::Attention`; afterwards it holds none.
    target : Target
        What it is made for. Its element type is the one that the model will have at last; numbers are chosen safe in
        it, and written in the type that the graph has now.
    padding_rows : {"any", "zero", "keep"}
        Which rows must be as before: see `simplify`. Rows without keys are finite.
    assume : collection of str
        What the user grants: "right-padding", "left-padding", "length_le:N".
    costs : Costs
        What decides among the kernels that take a site.

    Returns
    -------
    list of Lowered
        One for each node, in the graph's order.

    Raises
    ------
    ValueError
        If `padding_rows` or an assumption is unknown.
    """
    grants = Grants(assume, model)
    builder = SiteBuilder()
    masks = MaskWriter(builder)
    lowered = []
    for node in [node for node in model.graph if is_site(node)]:
        lowered.append(_lower(node, model, target, padding_rows, grants, costs, masks))
        model.graph.remove(node, safe=True)
    if lowered:
        model.graph.opset_imports.setdefault(MICROSOFT, 1)
        model.graph.opset_imports.pop(DOMAIN, None)
    return lowered


def _lower(
    node: ir.Node,
    model: ir.Model,
    target: Target,
    padding_rows: str,
    grants: Grants,
    costs: Costs,
    masks: MaskWriter,
) -> Lowered:
    asked = Asked.of(node, target.dtype, model.opset_imports.get("", 1))
    tensors = asked.inputs.tensors
    simplified = simplify(asked.mask, asked.lengths, tensors, grants, padding_rows)
    granted = {
        name: fact.assumed
        for name in simplified.mask.tensors
        for fact in grants.padding(simplified.mask, tensors)
        if fact.assumed is not None
        and fact.assumed.check == GRANTS["right-padding"][0]
        and tensors[name].name == fact.assumed.input
    }
    asked = replace(asked, mask=simplified.mask, right_padded=granted)
    kernel, refused, ground = _choose(asked, target, costs)
    made = emit(masks.b, masks, kernel, asked, target.provider)
    for old, new in zip(node.outputs, made, strict=True):
        if old.dtype is not None:
            new.dtype = old.dtype
        new.name = old.name
    masks.b.flush(node, asked.site.name)
    ir.convenience.replace_all_uses_with(list(node.outputs), made, replace_graph_outputs=True)
    assumes = list(simplified.assumes)
    if kernel.rest == "lengths":
        assumes += [granted[name] for name in parts(asked.mask).rest.tensors if name in granted]
    return Lowered(
        asked.site.name,
        str(asked.site.mask),
        kernel.operator,
        "; ".join([*simplified.why, f"{_carried(kernel, asked)}: {ground}"]),
        refused,
        [assumed.to_json() for assumed in dict.fromkeys(assumes)],
    )


def _choose(asked: Asked, target: Target, costs: Costs) -> tuple[Kernel, dict[str, list[str]], str]:
    """Return the best kernel that takes a site, why each better one doesn't, and what made it the best."""
    lengths = asked.lengths
    sizes = (lengths.batch, lengths.keys)
    # An empty batch costs nothing, whatever runs.
    batch, length = (
        size if isinstance(size, int) and size > 0 else typical for size, typical in zip(sizes, TYPICAL, strict=True)
    )
    provider = provider_of(target, asked.dtype)
    ranked = sorted(KERNELS, key=lambda kernel: costs.cost(kernel.name, provider, batch, length))
    reasons = {kernel.name: refusals(kernel, asked, target) for kernel in ranked}
    takers = [kernel for kernel in ranked if not reasons[kernel.name]]
    # Decomposed attention takes every site.
    cheapest = takers[0]
    refused = {kernel.name: reasons[kernel.name] for kernel in ranked[: ranked.index(cheapest)]}
    measured = costs.measured.get(asked.site.name, {})
    best = min(takers, key=lambda kernel: measured.get(kernel.name, math.inf))
    if best.name in measured:
        return best, refused, f"{measured[best.name]:.3g} times the fastest's time on this machine, at {costs.shapes}"
    cost = costs.cost(cheapest.name, provider, batch, length)
    return cheapest, refused, f"cost {cost:g} on {provider} at batch {batch}, length {length}"


CARRIED = {
    "causal": "causal as an attribute",
    "local": "the window as an attribute",
    "lengths": "{rest} as lengths of rows",
    "channel": "{rest} as a channel of the keys",
    "key mask": "{rest} as a mask of keys",
    "bool": "{mask} as a dense mask",
    "bias": "{mask} in a dense bias",
}


def _carried(kernel: Kernel, asked: Asked) -> str:
    """Return how a kernel is told a mask."""
    taken = parts(asked.mask)
    how = [CARRIED[part] for part in (kernel.window, kernel.rest) if part in CARRIED]
    how += ["the bias as it is"] if kernel.own_bias else []
    text = ", ".join(how) or ("no mask" if str(asked.mask) == "full" else "{mask} as a dense mask")
    return text.format(rest=taken.rest, mask=asked.mask)
