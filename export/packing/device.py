"""Attention of packed tokens on CUDA: in groups where the mask is one of them, else on all places."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from ...models.masks import Causal, Full
from ..builder import Builder
from ..lowering.canonical import ATTENTION, DOMAIN, Inputs
from .exits import Refused
from .groups import Groups, attend_groups, groups_of_rows, groups_of_segments
from .member import Member
from .packer import Packed, Packer, Roles
from .places import on_all_places
from .segments import split_segments

__all__ = ["Device"]

INT64 = ir.DataType.INT64


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
        # How many groups segments are is known on the device alone.
        unknown = segments is not None and self.packer.tokens.dummy is not None
        if unknown or rest not in (Full(), Causal()) or inputs.bias is not None or inputs.sink is not None:
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
