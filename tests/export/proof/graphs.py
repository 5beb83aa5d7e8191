"""Small graphs whose proof says something, in ONNX text, and what proves them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import onnx.parser
import onnx_ir as ir
from maskport.export.proof import Proof, prove
from maskport.models.masks import Mask

HEAD = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>\n'


def model(text: str) -> ir.Model:
    """Parse a graph: a name, inputs and outputs, constants, nodes."""
    return ir.from_proto(onnx.parser.parse_model(HEAD + text))


def proof(source: Any, result: Any, *masks: str, assumes: Sequence[str] = (), **options: Any) -> Proof:
    """Prove protos, bytes or models; masks and assumptions (``attention_mask right_padded``) are text."""
    granted = [dict(zip(("input", "check"), text.split(), strict=True)) for text in assumes]
    return prove(_ir(source), _ir(result), masks=[Mask.parse(mask) for mask in masks], assumes=granted, **options)


def _ir(given: Any) -> ir.Model:
    if isinstance(given, bytes):
        given = onnx.load_from_string(given)
    return given if isinstance(given, ir.Model) else ir.from_proto(given)
