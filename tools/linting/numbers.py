"""MP3xx: fills, and what becomes NaN."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from ...export.repairs import REPAIRS
from ...export.repairs.empty_rows import may_be_empty
from ...export.repairs.nodes import reaches_softmax
from ...export.symbolic.additive import LARGEST_FILL
from ...export.symbolic.scores import Scores
from ...export.symbolic.values import constant_of
from .rule import Found, Rule
from .subject import Subject, producers

__all__ = ["NUMBERS"]

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
LOWEST_HALF = float(np.finfo(np.float16).min)
# A score below this, added to the lowest number of float16, is rounded to -inf.
ROOM = 16


def _infinite_products(x: Subject) -> Iterator[Found]:
    products = REPAIRS["half-fill"].make().find(x.model)
    for node in products:
        yield Found("a mask is multiplied by an infinite fill: where it is 0 the product is NaN", node)
    results = {node.outputs[0] for node in products}
    for node, reason in x.attention.reasons.items():
        if reason.fault == "nan" and not results & producers(node.inputs[:1]):  # type: ignore[arg-type]
            yield Found(reason.reason, node, mends=False)


def _weak_fills(x: Subject) -> Iterator[Found]:
    for node, reason in x.attention.reasons.items():
        if reason.fault == "weak":
            yield Found(reason.reason, node)
    # What is added to scores and holds no fill is read as a bias.
    for node, fill, other in _products(x):
        given = {value.name for value in producers([other]) if value.producer() is None and value.const_value is None}
        if LARGEST_FILL < fill <= -1 and given and given <= x.masks.keys():
            yield Found(
                f"the mask {', '.join(sorted(map(str, given)))} is multiplied by {fill:g}, too small to mask", node
            )


def _products(x: Subject) -> Iterator[tuple[ir.Node, float, ir.Value]]:
    """Yield each product that is added to scores and has a number as one operand, the number, and the other operand."""
    for node in x.graph.all_nodes():
        if (node.domain, node.op_type) != ("", "Mul") or not reaches_softmax(node.outputs[0]):
            continue
        for number, other in (node.inputs, node.inputs[::-1]):
            tensor = None if number is None else constant_of(number)
            if tensor is not None and tensor.size == 1 and tensor.dtype in FLOATS and other is not None:
                yield node, float(tensor.numpy().astype(np.float32).item()), other
                break


def _nan_rows(x: Subject) -> Iterator[Found]:
    for site, report in x.sites:
        if report.empty_rows == "nan" and may_be_empty(site):
            yield Found(
                f"a query to which `{report.mask}` leaves no key gives NaN, and the next layer spreads it",
                site.node,
                report.name,
            )


def _half_overflows(x: Subject) -> Iterator[Found]:
    for site, report in x.sites:
        value, read = site.node.inputs[0], site.read
        if not isinstance(read, Scores) or read.replaced or value is None or value.dtype != ir.DataType.FLOAT16:
            continue
        if may_be_empty(site) and any(-np.inf < fill < LOWEST_HALF + ROOM for fill in read.fills):
            yield Found(
                f"{min(read.fills):g} is added to scores in float16: a score below -{ROOM} makes it -inf, and a query "
                f"to which `{report.mask}` leaves no key NaN",
                site.node,
                report.name,
            )


def _half_hazards(x: Subject) -> Iterator[Found]:
    for node, fill, _ in _products(x):
        if -np.inf < fill < LOWEST_HALF:
            yield Found(f"a mask is multiplied by {fill:g}, which is -inf in float16, and 0 x -inf is NaN", node)


NUMBERS = (
    Rule(
        "MP301",
        "infinite-product",
        "error",
        "A mask is multiplied by an infinite fill before it is added to scores.",
        "`mask * -1e9`, exported in float16, is `mask * -inf`, and 0 x -inf is NaN: so are all results, though "
        "PyTorch's are right.",
        "Choose instead of multiplying (`masked_fill`), or let `maskport optimize --repair half-fill` bound the fill.",
        _infinite_products,
        "half-fill",
    ),
    Rule(
        "MP302",
        "weak-fill",
        "error",
        "Masked scores get a fill that leaves them weight.",
        "Beside scores of 5 and 10, a fill of -10 hides nothing: exp(-10) is no zero, and a fill of 0 hides less than "
        "that.",
        "Fill with -inf, or with the lowest number of the type.",
        _weak_fills,
    ),
    Rule(
        "MP303",
        "nan-rows",
        "warning",
        "A query without any key gives NaN.",
        "A row of padding, or a left-padded row under a causal mask, has no key. NaN doesn't stay there: the next "
        "layer multiplies it by a weight of zero, which is NaN for every row.",
        "Fill with the lowest number of the type instead of -inf, or let `maskport optimize --repair empty-rows` set "
        "such rows to zero.",
        _nan_rows,
        "empty-rows",
    ),
    Rule(
        "MP304",
        "half-overflow",
        "warning",
        "The lowest number of float16 is added to scores, and a query may be without any key.",
        "Added to a negative score it overflows to -inf. Where all keys are masked, all scores are -inf, and the row "
        "is NaN.",
        "Choose between score and fill (`Where`) instead of adding, or add half of the lowest number.",
        _half_overflows,
    ),
    Rule(
        "MP305",
        "half-hazard",
        "note",
        "A mask is multiplied by a fill that float16 can't hold.",
        "It is right in float32. Converted to float16 the fill is -inf, and every 0 of the mask becomes NaN.",
        "Choose instead of multiplying (`masked_fill`), or convert with `maskport optimize --dtype float16`, which "
        "bounds fills.",
        _half_hazards,
    ),
)
