"""An attention whose tokens are packed."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from ...models.masks import Mask
from ..lowering.canonical import Site

__all__ = ["Member"]


@dataclass(frozen=True)
class Member:
    """An attention of a domain of tokens: its mask is padding and `residual`."""

    node: ir.Node
    site: Site
    residual: Mask
