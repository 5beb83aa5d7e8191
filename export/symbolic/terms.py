"""Scalar terms: what one element of a tensor is, as a function of its indices.

Terms are interned, so that equal terms are the same object. Integers are polynomials over symbols and other atoms
(`b*S + s` is what a flattened index looks like), booleans are formulas over comparisons of such, floats are
constants, choices between terms, or an operator that is carried along. Constructors simplify; nothing else does.
"""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

__all__ = [
    "FALSE",
    "ONE",
    "TRUE",
    "ZERO",
    "Term",
    "absolute",
    "add",
    "apply",
    "at_most",
    "at_most_zero",
    "atoms_of",
    "both",
    "choose",
    "either",
    "equal",
    "exact_quotient",
    "fixed",
    "floordiv",
    "holds",
    "integer",
    "is_choice",
    "is_constant",
    "least",
    "length",
    "load",
    "most",
    "mul",
    "neg",
    "negate",
    "number",
    "remainder",
    "sub",
    "substitute",
    "symbol",
    "to_bool",
    "to_float",
    "to_int",
]

# Terms are walked by recursion, as trees.
DEEPEST = 100
LARGEST = 10_000
# Trees of choices between constants are multiplied out up to this many leaves.
MOST_CHOICES = 64


class Term:
    """One node. `kind` is "int", "bool" or "float"; `op` and `args` say what it is.

    int    poly (number, ((atoms, coefficient), ...)), and the atoms symbol, load, floordiv, mod, abs, min, max, choose
    bool   true, false, at_most_zero (poly), zero (poly), and, or, not, load, choose
    float  number (numpy scalar), cast (int), load, choose, and operators by their ONNX names
    """

    __slots__ = ("__weakref__", "args", "choices", "depth", "kind", "leaves", "negation", "op", "serial", "size")
    depth: int
    size: int
    choices: int
    leaves: int
    negation: Term | None

    def __init__(self, kind: str, op: str, args: tuple[Any, ...], serial: int) -> None:
        self.kind, self.op, self.args, self.serial = kind, op, args, serial
        self.negation = None
        parts = list(_parts_of(op, args))
        self.depth = 1 + max((part.depth for part in parts), default=0)
        # As a tree, in which what is shared counts each time: so that a walk over it ends soon.
        self.size = 1 + sum(part.size for part in parts)
        if self.depth > DEEPEST or self.size > LARGEST:
            raise TooLarge(f"a term is nested more than {DEEPEST} deep, or has more than {LARGEST} parts")
        # How many terms without a choice it can be.
        if op in ("choose", "abs", "min", "max"):
            self.choices = max(2, sum(part.choices for part in args[op == "choose" :]))
        else:
            self.choices = min(LARGEST, math.prod(part.choices for part in parts)) if op == "poly" else 1
        # The constants of a tree of choices, 0 if anything else is in it.
        self.leaves = int(op in ("true", "false", "number") or (op == "poly" and not args[1]))
        if op == "choose" and args[1].leaves and args[2].leaves:
            self.leaves = args[1].leaves + args[2].leaves

    def __repr__(self) -> str:
        return self._text(4)

    def _text(self, depth: int) -> str:
        """Return the term as text without what is deeper: shared parts would be written again and again."""
        if self.op in ("symbol", "number"):
            return str(self.args[0])
        if not depth:
            return "..."
        if self.op == "poly":
            number, monomials = self.args
            parts = [
                "*".join([*([str(c)] if c != 1 else []), *(atom._text(depth - 1) for atom in atoms)])
                for atoms, c in monomials[:6]
            ] + ["..."] * (len(monomials) > 6)
            return f"({' + '.join(parts + ([str(number)] if number or not parts else []))})"
        shown = [a._text(depth - 1) if isinstance(a, Term) else str(a) for a in self.args[:6]]
        return f"{self.op}({', '.join(shown)})" if self.args else self.op


class TooLarge(ValueError):
    """A term that would be too large to work with."""


def _parts_of(op: str, args: tuple[Any, ...]) -> Iterator[Term]:
    """Yield the terms directly inside a term."""
    if op == "poly":
        for atoms, _ in args[1]:
            yield from atoms
    elif op == "load":
        yield from args[1]
    elif op != "symbol":
        yield from (argument for argument in args if isinstance(argument, Term))


_INTERNED: weakref.WeakValueDictionary[Any, Term] = weakref.WeakValueDictionary()
_SERIAL = itertools.count()


def _make(kind: str, op: str, *args: Any) -> Term:
    key = (kind, op, args)
    term = _INTERNED.get(key)
    if term is None:
        term = _INTERNED[key] = Term(kind, op, args, next(_SERIAL))
    return term


TRUE = _make("bool", "true")
FALSE = _make("bool", "false")


# Integers


def _poly(number: int, monomials: dict[tuple[Term, ...], int]) -> Term:
    kept = {atoms: c for atoms, c in monomials.items() if c}
    if number == 0 and len(kept) == 1:
        (atoms, c), *_ = kept.items()
        if c == 1 and len(atoms) == 1:
            return atoms[0]
    order = sorted(kept.items(), key=lambda item: [atom.serial for atom in item[0]])
    return _make("int", "poly", number, tuple(order))


def _parts(term: Term) -> tuple[int, dict[tuple[Term, ...], int]]:
    if term.op == "poly":
        return term.args[0], dict(term.args[1])
    return 0, {(term,): 1}


def integer(value: int) -> Term:
    """Return an integer constant."""
    return _poly(int(value), {})


ZERO, ONE = integer(0), integer(1)


def fixed(term: Term) -> int | None:
    """Return the value of an integer constant, else None."""
    return term.args[0] if term.op == "poly" and not term.args[1] else None


def is_constant(term: Term) -> bool:
    """Return whether a term is a constant of any kind."""
    return term in (TRUE, FALSE) or term.op == "number" or fixed(term) is not None


def symbol(name: str, low: Term | None = None, high: Term | None = None) -> Term:
    """Return an unknown integer, from `low` to `high` where they are given."""
    return _make("int", "symbol", name, low, high)


def length(index: Term) -> Term:
    """Return the length of an axis from the bound of its index."""
    return ONE if index.op != "symbol" or index.args[2] is None else add(index.args[2], ONE)


def load(kind: str, name: str, index: tuple[Term, ...]) -> Term:
    """Return an element of a tensor that is not looked into."""
    return _make(kind, "load", name, index)


def add(a: Term, b: Term) -> Term:
    number, monomials = _parts(a)
    more, others = _parts(b)
    for atoms, c in others.items():
        monomials[atoms] = monomials.get(atoms, 0) + c
    return _poly(number + more, monomials)


def neg(a: Term) -> Term:
    number, monomials = _parts(a)
    return _poly(-number, {atoms: -c for atoms, c in monomials.items()})


def sub(a: Term, b: Term) -> Term:
    return add(a, neg(b))


def mul(a: Term, b: Term) -> Term:
    product: dict[tuple[Term, ...], int] = {}
    for term, factor in _monomials(a):
        for other, times in _monomials(b):
            atoms = tuple(sorted(term + other, key=lambda atom: atom.serial))
            product[atoms] = product.get(atoms, 0) + factor * times
    return _poly(product.pop((), 0), product)


def _monomials(a: Term) -> list[tuple[tuple[Term, ...], int]]:
    number, monomials = _parts(a)
    return [((), number), *monomials.items()]


def _range(term: Term) -> tuple[Term | None, Term | None]:
    """Return bounds of an atom, or None where there is none."""
    match term.op:
        case "symbol":
            return term.args[1], term.args[2]
        case "mod":
            return ZERO, sub(term.args[1], ONE)
        case "abs":
            return ZERO, None
        case "max":
            return (ZERO if any((fixed(a) or 0) >= 0 and fixed(a) is not None for a in term.args) else None), None
        case "floordiv":
            low, high = _range(term.args[0]) if term.args[0].op != "poly" else (None, None)
            last = None if high is None else fixed(high)
            divisor = fixed(term.args[1])
            return (ZERO if low is ZERO else None), (integer(last // divisor) if last is not None and divisor else None)
    return None, None


def at_most(a: Term, b: Term) -> bool:
    """Return whether `a <= b` is certain from the bounds of the symbols."""
    rest = sub(a, b)
    for _ in range(8):
        number, monomials = _parts(rest)
        if not monomials:
            return number <= 0
        moved = False
        # Eliminate indices first: their bounds are lengths, whose own bounds come last.
        for atoms, c in sorted(monomials.items(), key=lambda item: -max(atom.serial for atom in item[0])):
            if len(atoms) == 1:
                low, high = _range(atoms[0])
                bound = high if c > 0 else low
                if bound is not None:
                    rest = add(rest, mul(integer(c), sub(bound, atoms[0])))
                    moved = True
                    break
            elif c < 0:
                # A product of what is at least `low` each, and not negative, is at least their product.
                lows = [low for atom in atoms if (low := _range(atom)[0]) is not None and at_most(ZERO, low)]
                if len(lows) == len(atoms):
                    rest = add(rest, sub(mul(integer(c), functools.reduce(mul, lows)), _poly(0, {atoms: c})))
                    moved = True
                    break
        if not moved:
            return False
    return False


def exact_quotient(a: Term, b: Term) -> Term | None:
    """Return `a / b` if the polynomial `b` divides `a`, else None."""
    if fixed(b) == 0:
        return None
    quotient, rest = ZERO, a

    def leading(term: Term) -> tuple[tuple[Term, ...], int]:
        return max(
            (item for item in _monomials(term) if item[1]),
            key=lambda item: (len(item[0]), [atom.serial for atom in item[0]]),
        )

    while fixed(rest) != 0:
        (atoms, c), (divisor, factor) = leading(rest), leading(b)
        left = list(atoms)
        for atom in divisor:
            if atom not in left:
                return None
            left.remove(atom)
        if c % factor:
            return None
        step = _poly(c // factor if not left else 0, {tuple(left): c // factor} if left else {})
        quotient, rest = add(quotient, step), sub(rest, mul(step, b))
    return quotient


def floordiv(a: Term, b: Term) -> Term:
    """Return the floor of `a / b`, with `b` positive."""
    if fixed(b) == 1:
        return a
    if fixed(a) is not None and fixed(b):
        return integer(fixed(a) // fixed(b))  # type: ignore[operator]
    whole, rest = ZERO, ZERO
    for atoms, c in _monomials(a):
        term = _poly(c if not atoms else 0, {atoms: c} if atoms else {})
        quotient = exact_quotient(term, b)
        whole, rest = (add(whole, quotient), rest) if quotient is not None else (whole, add(rest, term))
    if at_most(ZERO, rest) and at_most(rest, sub(b, ONE)):
        return whole
    return add(whole, _make("int", "floordiv", rest, b))


def remainder(a: Term, b: Term) -> Term:
    """Return `a` modulo a positive `b`."""
    quotient = floordiv(a, b)
    _number, monomials = _parts(quotient)
    if any(atom.op == "floordiv" for atoms in monomials for atom in atoms):
        return _make("int", "mod", a, b)
    return sub(a, mul(quotient, b))


def absolute(a: Term) -> Term:
    if at_most(ZERO, a):
        return a
    return neg(a) if at_most(a, ZERO) else _make("int", "abs", a)


def least(a: Term, b: Term) -> Term:
    if at_most(a, b):
        return a
    return b if at_most(b, a) else _make("int", "min", a, b)


def most(a: Term, b: Term) -> Term:
    if at_most(a, b):
        return b
    return a if at_most(b, a) else _make("int", "max", a, b)


# Booleans


def _split(poly: Term) -> tuple[Term, int, Term] | None:
    """Return (atom, coefficient, rest) for an atom that a comparison is resolved by."""
    if poly.choices > MOST_CHOICES:
        return None
    number, monomials = _parts(poly)
    for atoms, c in monomials.items():
        if len(atoms) == 1 and atoms[0].op in ("choose", "abs", "min", "max"):
            return atoms[0], c, _poly(number, {a: n for a, n in monomials.items() if a != atoms})
    return None


def at_most_zero(poly: Term) -> Term:
    """Return the truth of `poly <= 0`."""
    if at_most(poly, ZERO):
        return TRUE
    if at_most(ONE, poly):
        return FALSE
    if (split := _split(poly)) is not None:
        atom, c, rest = split
        if atom.op == "choose":
            condition, *options = atom.args
            return choose(condition, *(at_most_zero(add(rest, mul(integer(c), x))) for x in options))
        options = [atom.args[0], neg(atom.args[0])] if atom.op == "abs" else list(atom.args)
        one, other = (at_most_zero(add(rest, mul(integer(c), x))) for x in options)
        # max(a, b) <= r needs both; -max(a, b) <= r needs one.
        return (both if (atom.op != "min") == (c > 0) else either)(one, other)
    number, monomials = _parts(poly)
    divisor = math.gcd(*monomials.values())
    if divisor > 1:
        poly = _poly(-(-number // divisor), {atoms: c // divisor for atoms, c in monomials.items()})
    return _make("bool", "at_most_zero", poly)


def equal(a: Term, b: Term) -> Term:
    """Return the truth of `a == b` for two integers or two booleans."""
    if a.kind == "bool" or b.kind == "bool":
        one, other = to_bool(a), to_bool(b)
        return either(both(one, other), both(negate(one), negate(other)))
    poly = sub(a, b)
    if fixed(poly) is not None:
        return TRUE if fixed(poly) == 0 else FALSE
    if at_most(ONE, poly) or at_most(poly, integer(-1)):
        return FALSE
    if (split := _split(poly)) is not None:
        atom, c, rest = split
        if atom.op == "choose":
            condition, *options = atom.args
            return choose(condition, *(equal(add(rest, mul(integer(c), x)), ZERO) for x in options))
        return both(at_most_zero(poly), at_most_zero(neg(poly)))
    number, monomials = _parts(poly)
    if number == 0 and len(monomials) == 1:
        # A product is zero where a factor is.
        (factors, _), *_ = monomials.items()
        return either(*(_make("bool", "zero", factor) for factor in factors))
    if next(iter(monomials.values())) < 0:
        poly = neg(poly)
    return _make("bool", "zero", poly)


def negate(a: Term) -> Term:
    # Kept, because a walk over shared parts would negate each many times.
    if a.negation is None:
        a.negation = _negate(a)
        a.negation.negation = a
    return a.negation


def _negate(a: Term) -> Term:
    match a.op:
        case "true":
            return FALSE
        case "false":
            return TRUE
        case "not":
            return a.args[0]
        case "at_most_zero":
            return at_most_zero(sub(ONE, a.args[0]))
        case "and":
            return either(*map(negate, a.args))
        case "or":
            return both(*map(negate, a.args))
    return _make("bool", "not", a)


def _join(op: str, unit: Term, zero: Term, operands: tuple[Term, ...]) -> Term:
    parts: dict[Term, None] = {}
    for operand in operands:
        if operand is zero:
            return zero
        if operand is not unit:
            parts |= dict.fromkeys(operand.args if operand.op == op else (operand,))
    if any(negate(part) in parts for part in parts):
        return zero
    if not parts:
        return unit
    return next(iter(parts)) if len(parts) == 1 else _make("bool", op, *parts)


def both(*operands: Term) -> Term:
    return _join("and", TRUE, FALSE, operands)


def either(*operands: Term) -> Term:
    return _join("or", FALSE, TRUE, operands)


def to_bool(a: Term) -> Term:
    """Return `a != 0`."""
    if a.kind == "bool":
        return a
    if a.kind == "int":
        return negate(equal(a, ZERO))
    match a.op:
        case "number":
            return FALSE if a.args[0] == 0 else TRUE
        case "cast":
            return to_bool(a.args[0])
        case "choose":
            return choose(a.args[0], to_bool(a.args[1]), to_bool(a.args[2]))
    return _make("bool", "nonzero", a)


def holds(relation: str, a: Term, b: Term) -> Term:
    """Return the truth of an ONNX comparison: Less, LessOrEqual, Greater, GreaterOrEqual or Equal."""
    if a.kind == "float" or b.kind == "float":
        return _float_relation(relation, a, b)
    if relation == "Equal":
        return equal(a, b)
    a, b = to_int(a), to_int(b)
    low, high = (a, b) if relation.startswith("Less") else (b, a)
    return at_most_zero(add(sub(low, high), ZERO if relation.endswith("OrEqual") else ONE))


_NUMPY_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Equal": np.equal,
}


def _float_relation(relation: str, a: Term, b: Term) -> Term:
    for one, other, swapped in ((a, b, False), (b, a, True)):
        if one.op == "choose" and is_choice(one):
            condition, *options = one.args
            pairs = [(other, x) if swapped else (x, other) for x in options]
            return choose(condition, *(_float_relation(relation, *pair) for pair in pairs))
    if a.op == "number" and b.op == "number":
        return TRUE if _NUMPY_RELATIONS[relation](a.args[0], b.args[0]) else FALSE
    if a.op == "cast" and b.op == "cast" and _exact(a) and _exact(b):
        return holds(relation, a.args[0], b.args[0])
    for one, other, mirrored in ((a, b, relation), (b, a, _MIRRORED[relation])):
        if one.op == "cast" and other.op == "number" and np.isfinite(other.args[0]):
            value = float(other.args[0])
            if abs(value) + 1 > _largest_integer(one):
                continue
            # An integer against a number with a fraction: the neighbouring integer decides.
            if value == int(value):
                return holds(mirrored, one.args[0], integer(int(value)))
            if mirrored == "Equal":
                return FALSE
            below = int(np.floor(value))
            return holds("LessOrEqual" if mirrored.startswith("Less") else "Greater", one.args[0], integer(below))
    return _make("bool", relation, a, b)


def _largest_integer(cast: Term) -> int:
    """Return the number up to which a float type holds every integer."""
    return 2 ** (ml_dtypes.finfo(np.dtype(cast.args[1])).nmant + 1)


def _exact(cast: Term) -> bool:
    """Return whether no position or token is rounded by a cast, as they are in half types."""
    return _largest_integer(cast) >= 2**24


_MIRRORED = {
    "Less": "Greater",
    "LessOrEqual": "GreaterOrEqual",
    "Greater": "Less",
    "GreaterOrEqual": "LessOrEqual",
    "Equal": "Equal",
}


# Choices, floats, casts


def choose(condition: Term, a: Term, b: Term) -> Term:
    """Return `a` where the condition is true, else `b`."""
    if condition is TRUE or a is b:
        return a
    if condition is FALSE:
        return b
    if a.kind == "bool" and b.kind == "bool":
        return either(both(condition, a), both(negate(condition), b))
    if condition.op == "not":
        condition, a, b = condition.args[0], b, a
    if a.op == "choose" and a.args[0] is condition:
        a = a.args[1]
    if b.op == "choose" and b.args[0] is condition:
        b = b.args[2]
    if a.kind != b.kind:
        a, b = to_float(a, np.float32), to_float(b, np.float32)
    return a if a is b else _make(a.kind, "choose", condition, a, b)


def is_choice(term: Term) -> bool:
    """Return whether a term is a constant or a tree of choices between constants."""
    return 0 < term.leaves <= MOST_CHOICES


def number(value: Any) -> Term:
    """Return a float constant; its numpy type is kept, because arithmetic in half differs."""
    # NaN and -0.0 must intern by their bits.
    term = _NUMBERS.get((value.dtype.name, value.tobytes()))
    if term is None:
        term = _NUMBERS[value.dtype.name, value.tobytes()] = _make("float", "number", value, value.dtype.name)
    return term


_NUMBERS: dict[tuple[str, bytes], Term] = {}

_NUMPY: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Min": np.minimum,
    "Max": np.maximum,
    "Neg": np.negative,
    "Abs": np.abs,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Exp": np.exp,
    "Log": np.log,
    "Tanh": np.tanh,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Sin": np.sin,
    "Cos": np.cos,
}


def apply(op: str, *operands: Term) -> Term:
    """Return an ONNX float operator of terms: computed on constants, inside choices, else carried along."""
    if op in _NUMPY and all(operand.op == "number" for operand in operands):
        values = [operand.args[0] for operand in operands]
        with np.errstate(all="ignore"):
            result = np.asarray(_NUMPY[op](*values))
        return number(result.astype(values[0].dtype)[()])
    if (whole := _on_integers(op, operands)) is not None:
        return whole
    leaves = [operand.leaves for operand in operands]
    if op in _NUMPY and all(leaves) and math.prod(leaves) <= MOST_CHOICES:
        place, chosen = next((i, o) for i, o in enumerate(operands) if o.op == "choose")
        condition, a, b = chosen.args
        one, two = ((*operands[:place], x, *operands[place + 1 :]) for x in (a, b))
        return choose(condition, apply(op, *one), apply(op, *two))
    return _make("float", op, *operands)


_INTEGER: dict[str, Callable[..., Term]] = {"Add": add, "Sub": sub, "Mul": mul, "Neg": neg, "Abs": absolute}


def _on_integers(op: str, operands: tuple[Term, ...]) -> Term | None:
    """Return an operator of positions that are held as floats as that of the positions, else None."""
    casts = [operand for operand in operands if operand.op == "cast" and _exact(operand)]
    if op not in _INTEGER or not casts:
        return None
    whole = [_as_integer(operand) for operand in operands]
    if any(operand is None for operand in whole):
        return None
    return to_float(_INTEGER[op](*whole), casts[0].args[1])


def _as_integer(a: Term) -> Term | None:
    if a.op == "cast" and _exact(a):
        return a.args[0]
    if a.op == "number" and abs(a.args[0]) < 2**24 and a.args[0] == int(a.args[0]):
        return integer(int(a.args[0]))
    return None


def to_float(a: Term, dtype: Any) -> Term:
    """Cast to a numpy float type."""
    if a.kind == "bool":
        return choose(a, number(np.dtype(dtype).type(1)), number(np.dtype(dtype).type(0)))
    if a.op == "number":
        with np.errstate(all="ignore"):
            return number(np.dtype(dtype).type(a.args[0]))
    if fixed(a) is not None:
        return number(np.dtype(dtype).type(fixed(a)))
    if a.op == "choose":
        return choose(a.args[0], to_float(a.args[1], dtype), to_float(a.args[2], dtype))
    if a.kind == "float":
        return a
    # A polynomial with a choice in it is a choice of polynomials.
    split = _split(a)
    if split is not None and split[0].op == "choose":
        atom, c, rest = split
        condition, *options = atom.args
        return choose(condition, *(to_float(add(rest, mul(integer(c), x)), dtype) for x in options))
    return _make("float", "cast", a, np.dtype(dtype).name)


def to_int(a: Term) -> Term:
    """Cast to an integer."""
    if a.kind == "int":
        return a
    if a.kind == "bool":
        return choose(a, ONE, ZERO)
    match a.op:
        case "number" if np.isfinite(a.args[0]):
            return integer(int(a.args[0]))
        case "cast" if _exact(a):
            return a.args[0]
        case "choose":
            return choose(a.args[0], to_int(a.args[1]), to_int(a.args[2]))
    return _make("int", "truncate", a)


def atoms_of(term: Term) -> Iterator[Term]:
    """Yield every term inside a term, itself included, each once."""
    seen: set[Term] = set()
    waiting = [term]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        yield current
        waiting += _parts_of(current.op, current.args)


def substitute(term: Term, values: dict[Term, Term]) -> Term:
    """Replace terms inside a term, and simplify again."""
    done: dict[Term, Term] = dict(values)

    def visit(t: Term) -> Term:
        if t in done:
            return done[t]
        done[t] = result = _rebuild(t, visit)
        return result

    return visit(term)


def _rebuild(t: Term, visit: Callable[[Term], Term]) -> Term:
    match t.op:
        case "poly":
            total = integer(t.args[0])
            for atoms, c in t.args[1]:
                total = add(total, functools.reduce(mul, map(visit, atoms), integer(c)))
            return total
        case "load":
            return load(t.kind, t.args[0], tuple(map(visit, t.args[1])))
        case "symbol" | "number" | "true" | "false":
            return t
        case "cast":
            return to_float(visit(t.args[0]), t.args[1])
    operands = tuple(visit(a) if isinstance(a, Term) else a for a in t.args)
    rules: dict[str, Callable[..., Term]] = {
        "floordiv": floordiv,
        "mod": remainder,
        "abs": absolute,
        "min": least,
        "max": most,
        "choose": choose,
        "at_most_zero": at_most_zero,
        "and": both,
        "or": either,
        "not": negate,
        "nonzero": to_bool,
        "truncate": to_int,
        "zero": lambda a: equal(a, ZERO),
    }
    if t.op in rules:
        return rules[t.op](*operands)
    return holds(t.op, *operands) if t.kind == "bool" else apply(t.op, *operands)
