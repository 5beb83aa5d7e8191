"""Attention of packed tokens on CUDA: in groups where the mask is one of them, else on all places."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import onnx_ir as ir

from ...models.masks import Causal, Full, Mask
from ..builder import Builder, like
from ..lowering.canonical import ATTENTION, DOMAIN, Inputs, Site, is_site
from ..sites_metadata import SITE_KEY
from ..symbolic.interpreter import Interpreter
from .exits import Refused
from .groups import MICROSOFT, Groups, attend_groups, groups_of_rows, groups_of_segments
from .member import Member
from .packer import Packed, Packer, Roles
from .places import on_all_places

__all__ = ["Device", "group_segments", "split_segments"]

INT64 = ir.DataType.INT64


def split_segments(mask: Mask) -> tuple[str | None, Mask]:
    """Return the tensor of a mask's segments, if it has one, and what else the mask says."""
    conjuncts = list(mask.conjuncts)
    found = [one for one in conjuncts if str(one).startswith("segments(") and len(one.tensors) == 1]
    rest = [one for one in conjuncts if not found or one is not found[0]]
    name = next(iter(found[0].tensors)) if found else None
    return name, functools.reduce(operator.and_, rest, Full()).simplify()


class Device:
    """Writes attention for CUDA."""

    def __init__(self, packer: Packer, dtype: str | None, *, extras: bool) -> None:
        self.packer, self.dtype, self.extras = packer, dtype, extras
        self._groups: dict[str | None, Groups] = {}

    def __call__(self, member: Member, inputs: Inputs, operands: Sequence[Packed]) -> tuple[ir.Value, str, str]:
        """Write the attention of packed queries, keys and values; return [T, Hq * Dv], the operator, and how."""
        site = member.site
        segments, rest = split_segments(member.residual)
        if self.extras and (segments is not None or rest == Causal()):
            raise Refused("an output picks tokens by their place, which may be padding")
        if rest not in (Full(), Causal()) or inputs.bias is not None or inputs.sink is not None:
            whole = [self.packer.scattered(operand, Roles(0, 1), zero=False) for operand in operands]
            _, picked = on_all_places(self.packer, member.node, whole)
            return picked, f"{DOMAIN}.{ATTENTION}", "on all places"
        build = Builder(site.name)
        groups = self._group(build, inputs, segments)
        values = [operand.value for operand in operands]
        result, kernel = attend_groups(build, groups, site, rest == Causal(), values, self.dtype)
        self.packer.build.nodes += build.nodes
        whose = "rows" if segments is None else f"segments({segments})"
        return (
            result,
            kernel,
            f"padding is left out: tokens in groups of their own length, {whose}"
            + (", causal as an attribute" if rest == Causal() else ""),
        )

    def _group(self, build: Builder, inputs: Inputs, segments: str | None) -> Groups:
        tokens = self.packer.tokens
        key = None if segments is None else str(inputs.tensors[segments].name)
        if key not in self._groups:
            self._groups[key] = (
                groups_of_rows(build, tokens, extras=self.extras)
                if segments is None
                else groups_of_segments(
                    build, tokens.row, tokens.position, tokens.batch, tokens.length, inputs.tensors[segments]
                )
            )
        return self._groups[key]


def group_segments(model: ir.Model, dtype: str | None) -> dict[str, tuple[str, str]]:
    """Write canonical attention within segments by groups of tokens, in place; return the operators and how."""
    x = Interpreter(model.graph)
    forms: dict[str, tuple[str, str]] = {}
    groups: dict[ir.Value, Groups] = {}
    for node in [node for node in model.graph if is_site(node)]:
        site, inputs = Site.of(node), Inputs.of(node)
        segments, rest = split_segments(site.mask)
        if segments is None or rest not in (Full(), Causal()) or site.cross:
            continue
        if any(value is not None for value in (inputs.bias, inputs.sink, inputs.past_key)):
            continue
        if x.shape(inputs.query)[:2] != x.shape(inputs.key)[:2]:
            continue
        build = Builder(site.name)
        tensor = inputs.tensors[segments]
        batch, length = build.dimension(tensor, 0), build.dimension(tensor, 1)
        if tensor not in groups:
            places = build.op(
                "Range",
                build.integer(0),
                build.op("Squeeze", build.op("Mul", batch, length)),
                build.integer(1),
                dtype=INT64,
            )
            row, position = build.op("Div", places, length), build.op("Mod", places, length)
            groups[tensor] = groups_of_segments(build, row, position, batch, length, tensor)
        flat = [
            build.op("Reshape", value, build.ints(-1, heads * size))
            for value, heads, size in (
                (inputs.query, site.q_heads, site.head_size),
                (inputs.key, site.kv_heads, site.head_size),
                (inputs.value, site.kv_heads, site.v_head_size),
            )
        ]
        result, kernel = attend_groups(build, groups[tensor], site, rest == Causal(), flat, dtype)
        made = like(build.op("Reshape", result, build.join(batch, length, build.ints(-1))), node.outputs[0])
        made.producer().metadata_props[SITE_KEY] = site.name  # type: ignore[union-attr]
        model.graph.insert_before(node, build.nodes)
        ir.convenience.replace_all_uses_with(node.outputs[0], made, replace_graph_outputs=True)
        model.graph.remove(node, safe=True)
        model.graph.opset_imports.setdefault(MICROSOFT, 1)
        forms[site.name] = kernel, f"tokens in groups of their own length, segments({segments})"
    return forms
