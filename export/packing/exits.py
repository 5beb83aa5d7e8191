"""Where packed values leave for what looks across tokens: allowed if padding has no say there, else not packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ...models.masks import Causal, Full, Mask
from ..builder import like, take_over
from ..lowering.canonical import Inputs, Site, is_site
from ..symbolic import rules
from ..symbolic import terms as t
from ..symbolic.rules import attribute, optional
from ..symbolic.terms import Term
from ..symbolic.values import NotFollowed, constant_of, describe
from .packer import Packed, Packer, Roles
from .tokens import put_back

__all__ = ["Exit", "Refused", "leave"]


class Refused(Exception):
    """Tokens that can't be packed, and why."""


@dataclass(frozen=True)
class Exit:
    """An input of a node that needs all of a packed value."""

    node: ir.Node
    place: int


def leave(
    p: Packer, graph: ir.Graph, exits: Sequence[Exit], residuals: Sequence[Mask], padding: Mask
) -> tuple[int, ...]:
    """Give outputs and nodes outside what they need of the packed values.

    Returns
    -------
    tuple of int
        Positions whose tokens must be kept even where they are padding: outputs pick them.

    Raises
    ------
    Refused
        If padding would have a say in a value that is no padding.
    """
    whole: dict[ir.Value, ir.Value] = {}
    places: list[int] = []
    for exit_ in exits:
        node, value = exit_.node, exit_.node.inputs[exit_.place]
        assert value is not None
        roles, packed = p.packed[value]
        if node.op_type in ("Shape", "Size"):
            _measure(p, node, value)
        elif (place := _picked_place(p, node, exit_.place, roles)) is not None:
            _check_place(place, residuals, value)
            places.append(place)
            _pick(p, node, packed, place)
        elif _masks_it(node, exit_.place, padding) or _is_zero_at_padding(p, value, roles, padding):
            if value not in whole:
                whole[value] = p.scattered(packed, roles, zero=False)
                whole[value].shape = value.shape
            node.replace_input_with(exit_.place, whole[value])
        else:
            raise Refused(
                f"{node.name!r} ({node.op_type}) looks across the tokens of {describe(value)}, and nothing shows that "
                "padding has no say in it"
            )
    for output in list(graph.outputs):
        if output in p.packed:
            roles, packed = p.packed[output]
            take_over(output, like(p.scattered(packed, roles, zero=True), output))
    return tuple(dict.fromkeys(places))


def _measure(p: Packer, node: ir.Node, value: ir.Value) -> None:
    """Write a shape from the lengths that are known, without the value."""
    if node.op_type == "Size":
        raise Refused(f"{node.name!r} counts the elements of {describe(value)}")
    build, shape = p.build, p.shape(value)
    start = attribute(node, "start", 0)
    end = attribute(node, "end", len(shape))
    parts = []
    for length in shape[start:end]:
        number = t.fixed(length)
        if number is not None:
            parts.append(build.ints(number))
        elif length is p.batch or length is p.length:
            parts.append(p.tokens.batch if length is p.batch else p.tokens.length)
        elif length is t.mul(p.batch, p.length):
            parts.append(p.tokens.size)
        else:
            raise Refused(f"{node.name!r} asks for a length of {describe(value)} that is not known")
    made = build.join(*parts) if parts else build.constant([], "int64")
    take_over(node.outputs[0], like(made, node.outputs[0]))


def _picked_place(p: Packer, node: ir.Node, place: int, roles: Roles) -> int | None:
    """Return the position that a node picks of every row, if it picks one."""
    if place != 0 or roles != Roles(0, 1):
        return None
    if node.op_type == "Gather" and node.inputs[1] is not None:
        tensor = constant_of(node.inputs[1])
        at = attribute(node, "axis", 0) % len(p.shape(node.inputs[0]))  # type: ignore[arg-type]
        return int(tensor.numpy().reshape(-1)[0]) if tensor is not None and tensor.size == 1 and at == 1 else None
    if node.op_type == "Slice":
        try:
            starts, ends = (p.x.numbers(node.inputs[i]) for i in (1, 2))  # type: ignore[arg-type]
            given = optional(node, 3)
            axes = p.x.numbers(given) if given is not None else list(range(len(starts)))
        except NotFollowed:
            return None
        steps = optional(node, 4)
        if axes == [1] and (steps is None or p.x.numbers(steps) == [1]):
            last = starts[0] == -1 and ends[0] >= rules.FAR
            return starts[0] if ends[0] == starts[0] + 1 != 0 or last else None
    return None


def _check_place(place: int, residuals: Sequence[Mask], value: ir.Value) -> None:
    """Refuse a position where padding would see other keys than it did."""
    for residual in residuals:
        if residual == Full() or (place == -1 and residual == Causal()) or (place == 0 and residual.implies(Causal())):
            continue
        raise Refused(f"an output picks position {place} of {describe(value)}, which under padding sees other keys")


def _pick(p: Packer, node: ir.Node, packed: Packed, place: int) -> None:
    """Pick a position of every row among the tokens."""
    build, tokens = p.build, p.tokens
    count = build.op("Squeeze", build.op("Shape", tokens.flat, dtype=ir.DataType.INT64))
    numbers = build.op("Range", build.integer(0), count, build.integer(1), dtype=ir.DataType.INT64)
    where = put_back(build, tokens, numbers, build.integer(0))
    table = build.op("Reshape", where, build.join(tokens.batch, tokens.length))
    index = build.op("Gather", table, build.integer(place), axis=1)
    picked = build.op("Gather", packed.value, index, axis=0)
    scalar = node.op_type == "Gather" and not p.shape(node.inputs[1])  # type: ignore[arg-type]
    if not scalar:
        picked = build.op("Unsqueeze", picked, build.ints(1))
    take_over(node.outputs[0], like(picked, node.outputs[0]))


def _masks_it(node: ir.Node, place: int, padding: Mask) -> bool:
    """Return whether these are keys or values of an attention that masks the padding."""
    return (
        is_site(node) and place in (1, 2) and Site.of(node).mask.implies(padding) and Inputs.of(node).past_key is None
    )


def _is_zero_at_padding(p: Packer, value: ir.Value, roles: Roles, padding: Mask) -> bool:
    """Return whether a value is a product with something that is zero where the mask is padding."""
    node = value.producer()
    if node is None or node.op_type not in ("Mul", "Where") or roles.merged or roles.batch is None:
        return False
    assert roles.sequence is not None
    shape = p.shape(value)
    b = t.symbol("padded b", t.ZERO, t.sub(p.batch, t.ONE))
    s = t.symbol("padded s", t.ZERO, t.sub(p.length, t.ONE))
    index = tuple(
        b
        if axis == roles.batch
        else s
        if axis == roles.sequence
        else t.symbol(f"padded {axis}", t.ZERO, t.sub(n, t.ONE))
        for axis, n in enumerate(shape)
    )
    (name,) = padding.tensors
    pad = padding._expr[2]

    def at_padding(operand: ir.Value) -> Term | None:
        try:
            term = p.x.term(operand, rules.broadcast_index(p.shape(operand), index))
        except (NotFollowed, t.TooLarge):
            return None
        loads = [atom for atom in t.atoms_of(term) if atom.op == "load" and atom.args[0] == name]
        hidden = {load: (t.integer(pad) if load.kind == "int" else (t.TRUE if pad else t.FALSE)) for load in loads}
        return t.substitute(term, hidden)

    operands = [v for v in node.inputs if v is not None]
    terms = [at_padding(operand) for operand in operands]
    if node.op_type == "Where":
        return (terms[0] is t.FALSE and _is_zero(terms[2])) or (terms[0] is t.TRUE and _is_zero(terms[1]))
    return any(_is_zero(term) for term in terms)


def _is_zero(term: Term | None) -> bool:
    if term is None:
        return False
    return t.fixed(term) == 0 if term.kind == "int" else term.op == "number" and float(term.args[0]) == 0
