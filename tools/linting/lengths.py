"""MP2xx: lengths and batches that the file holds fast."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import onnx_ir as ir

from ...export.symbolic import terms as t
from ...export.symbolic.interpreter import deep_stack
from ...export.symbolic.terms import Term, TooLarge
from ...export.symbolic.values import NotFollowed, constant_of
from .rule import Found, Rule
from .subject import SIZES, Subject

__all__ = ["LENGTHS"]

ELEMENTWISE = {
    *("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul"),
    *("Or", "Pow", "Sub", "Where", "Xor"),
}

# What takes a part of a constant.
CUTS = ("Gather", "GatherND", "Slice")


def _baked_lengths(x: Subject) -> Iterator[Found]:
    return (found for of_batch, found in _baked(x) if not of_batch)


def _baked_batches(x: Subject) -> Iterator[Found]:
    return (found for of_batch, found in _baked(x) if of_batch)


def _baked(x: Subject) -> list[tuple[bool, Found]]:
    """Return each node at which a free size meets a fixed one, and whether it is the size of the batch."""
    batches, lengths = _free(x)
    found = []
    for node in x.graph if batches | lengths else ():
        checks = {"Reshape": _reshaped, "Gather": _gathered, "GatherND": _gathered}
        check = _broadcast if node.op_type in ELEMENTWISE else checks.get(node.op_type)
        if check is None or node.domain != "":
            continue
        try:
            with deep_stack():
                conflict = check(x, node, batches | lengths)
        except (NotFollowed, TooLarge, RecursionError):
            continue
        if conflict is not None:
            names, message = conflict
            found.append((names <= batches, Found(message, node)))
    return found


def _free(x: Subject) -> tuple[set[str], set[str]]:
    """Return the names of free sizes that are batches, and of the others; a name that is both is a length."""
    names: tuple[set[str], set[str]] = set(), set()
    for value in x.inputs.values():
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int) and size.value:
                names[min(axis, 1)].add(size.value)
    return names[0] - names[1], names[1]


Conflict = tuple[set[str], str] | None


def _sizes(term: Term) -> set[str] | None:
    """Return the names of the sizes in a term; None if something else is in it."""
    atoms = [atom for atom in t.atoms_of(term) if atom.op != "poly"]
    return {atom.args[0] for atom in atoms} if all(atom.op == "symbol" for atom in atoms) else None


def _product(sizes: tuple[Term, ...] | list[Term]) -> Term:
    return functools.reduce(t.mul, sizes, t.ONE)


def _reshaped(x: Subject, node: ir.Node, free: set[str]) -> Conflict:
    data, target = node.inputs[:2]
    assert data is not None
    assert target is not None
    shape, asked = x.interpreter.shape(data), x.interpreter.vector(target)
    if "allowzero" not in node.attributes:
        asked = [shape[axis] if t.fixed(n) == 0 and axis < len(shape) else n for axis, n in enumerate(asked)]
    given, rest = _product(shape), _product([n for n in asked if t.fixed(n) != -1])
    names = _sizes(given)
    if names is None or not names <= free or _sizes(rest) is None or not names - (_sizes(rest) or set()):
        return None
    inferred = any(t.fixed(n) == -1 for n in asked)
    fixed = [size for size in map(t.fixed, asked) if size is not None and size > 1]
    if not fixed or (t.exact_quotient(given, rest) is not None if inferred else given is rest):
        return None
    missing = names - (_sizes(rest) or set())
    # Before an axis that takes what is left, the first is the batch.
    if inferred and t.fixed(asked[0]) not in (None, -1):
        first = _sizes(shape[0]) or set()
        missing = first & missing or missing
    return (
        missing,
        f"{_text(shape)} is reshaped to {_text(asked)}: a number of the example stands for {_joined(missing)}",
    )


def _broadcast(x: Subject, node: ir.Node, free: set[str]) -> Conflict:
    operands = [value for value in node.inputs if value is not None]
    shapes = [x.interpreter.shape(value) for value in operands]
    for axis in range(1, max(map(len, shapes)) + 1):
        sizes = [(shape[-axis], value) for shape, value in zip(shapes, operands, strict=True) if axis <= len(shape)]
        open_ = {size.args[0] for size, _ in sizes if size.op == "symbol" and size.args[0] in free}
        fixed = [(n, value) for size, value in sizes if (n := t.fixed(size)) is not None and n > 1]
        if open_ and fixed:
            number, value = fixed[0]
            return open_, f"{value.name} has the fixed size {number}, and meets {_joined(open_)}, which is free"
    return None


def _gathered(x: Subject, node: ir.Node, free: set[str]) -> Conflict:
    data, indices = node.inputs[:2]
    assert data is not None
    assert indices is not None
    shape, counts = x.interpreter.shape(data), [t.fixed(n) for n in x.interpreter.shape(indices)]
    pairs = node.op_type == "GatherND"
    if not counts or counts[0] is None or counts[0] < 2 or counts[1:] != [1] * pairs:
        return None
    if pairs and "batch_dims" in node.attributes and node.attributes["batch_dims"].as_int():
        return None
    names = _sizes(shape[0 if pairs else node.attributes.get_int("axis", 0) % len(shape)])
    place = t.symbol("place", t.ZERO, t.integer(counts[0] - 1))
    atoms = set(t.atoms_of(x.interpreter.term(indices, (place, t.ZERO) if pairs else (place,))))
    # The first ones, as `arange` counts them: not some that the graph chooses.
    if not names or not names <= free or place not in atoms or any(atom.op == "load" for atom in atoms):
        return None
    return names, f"{counts[0]} of {_joined(names)} are taken, as many as an example had"


def _text(sizes: tuple[Term, ...] | list[Term]) -> str:
    fixed = [t.fixed(size) for size in sizes]
    named = [" x ".join(sorted(_sizes(size) or {"?"})) for size in sizes]
    return f"[{', '.join(str(n) if n is not None else name for n, name in zip(fixed, named, strict=True))}]"


def _joined(names: set[str]) -> str:
    return " and ".join(sorted(names))


def _limited(x: Subject) -> Iterator[Found]:
    told: set[ir.Value] = set()
    for site, report in x.sites:
        waiting, seen = list(site.mask_values), set(site.mask_values)
        while waiting:
            value = waiting.pop()
            node = value.producer()
            if node is None or node.op_type in SIZES:
                continue
            for place, operand in enumerate(node.inputs):
                if operand is None or operand in seen:
                    continue
                tensor = constant_of(operand)
                shape = () if tensor is None else tensor.shape.numpy()
                if place == 0 and node.op_type in CUTS and len(shape) >= 2 and shape[-1] == shape[-2] > 1:
                    if operand not in told:
                        yield Found(
                            f"the mask is cut from {operand.name}, which has {shape[-1]} rows: longer inputs fail",
                            node,
                            report.name,
                        )
                    told.add(operand)
                seen.add(operand)
                waiting.append(operand)


def _fixed(x: Subject) -> Iterator[Found]:
    shapes = [value.shape for value in x.inputs.values() if value.shape is not None and len(value.shape) >= 2]
    if shapes and not any(isinstance(size, ir.SymbolicDim) for shape in shapes for size in shape):
        sizes = ", ".join(f"{name} {list(v.shape)}" for name, v in x.inputs.items() if v.shape is not None)
        yield Found(f"no size of an input is free: {sizes}")


LENGTHS = (
    Rule(
        "MP201",
        "baked-length",
        "error",
        "A length of the example is in the graph as a number, and the inputs declare it free.",
        "Other lengths fail, or give numbers that are wrong: a Reshape mixes tokens without a word.",
        "Take sizes from tensors (`x.shape[1]`) and not from numbers or cached buffers; export with lengths of the "
        "example that are no accident, such as 7, and check with `maskport validate`.",
        _baked_lengths,
    ),
    Rule(
        "MP202",
        "baked-batch",
        "error",
        "The batch of the example is in the graph as a number, and the inputs declare it free.",
        "Other batches fail, or their rows are mixed.",
        "Take the batch from a tensor (`x.shape[0]`), and export with an example of more than one row.",
        _baked_batches,
    ),
    Rule(
        "MP203",
        "length-limit",
        "note",
        "A mask is cut from a constant, and so can't be longer than it.",
        "It is right up to that length, and takes its memory at every length.",
        "Make the mask from positions: `maskport.models.Causal().to_onnx()`, or `arange` and a comparison.",
        _limited,
    ),
    Rule(
        "MP204",
        "fixed-sizes",
        "note",
        "No input has a free size.",
        "The file runs at one batch and length; every shorter input is padded to it.",
        "Export with `dynamic_shapes`, if other sizes are wanted.",
        _fixed,
    ),
)
