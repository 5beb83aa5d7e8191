"""Terms simplify to what they mean, and to nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maskport.export.symbolic import terms as t

LENGTH = t.symbol("n", t.ONE)
I, J = (t.symbol(name, t.ZERO, t.sub(LENGTH, t.ONE)) for name in "ij")  # noqa: E741
V = t.load("int", "v", (I,))


def test_equal_terms_are_one_object() -> None:
    assert t.add(I, J) is t.add(J, I)
    assert t.sub(t.add(I, V), V) is I
    assert t.mul(t.add(I, t.ONE), t.integer(2)) is t.add(t.add(I, I), t.integer(2))


def test_a_flattened_index_is_taken_apart() -> None:
    flat = t.add(t.mul(I, LENGTH), J)
    assert t.floordiv(flat, LENGTH) is I
    assert t.remainder(flat, LENGTH) is J
    assert t.floordiv(J, LENGTH) is t.ZERO


def test_bounds_decide_comparisons() -> None:
    assert t.at_most_zero(t.neg(I)) is t.TRUE
    assert t.at_most_zero(t.sub(LENGTH, I)) is t.FALSE
    assert t.at_most_zero(t.sub(I, J)).op == "at_most_zero"
    assert t.equal(I, LENGTH) is t.FALSE
    assert t.most(t.neg(I), t.ZERO) is t.ZERO


def test_a_quotient_is_exact_or_none() -> None:
    product = t.mul(t.add(I, LENGTH), t.mul(LENGTH, t.integer(6)))
    assert t.exact_quotient(product, t.mul(LENGTH, t.integer(3))) is t.mul(t.integer(2), t.add(I, LENGTH))
    assert t.exact_quotient(product, t.add(I, LENGTH)) is t.mul(LENGTH, t.integer(6))
    assert t.exact_quotient(product, J) is None
    assert t.exact_quotient(product, t.integer(4)) is None


def test_half_overflows_as_it_does_in_the_graph() -> None:
    fill = t.number(np.float16(-65504))
    assert np.isneginf(t.apply("Add", fill, t.number(np.float16(-1000))).args[0])
    assert np.isnan(t.apply("Mul", t.number(np.float16(0)), t.number(np.float16(-np.inf))).args[0])


def test_choices_are_computed_through() -> None:
    condition = t.to_bool(V)
    chosen = t.choose(condition, t.number(np.float32(0)), t.number(np.float32(-1)))
    assert t.apply("Mul", chosen, t.number(np.float32(2))).args[1].args[0] == -2
    assert t.to_bool(t.to_float(condition, np.float32)) is condition
    assert t.choose(condition, chosen, chosen) is chosen
    assert t.holds("Less", chosen, t.number(np.float32(0))) is t.negate(condition)


def test_an_integer_against_a_fraction() -> None:
    cast = t.to_float(V, np.float32)
    half = t.number(np.float32(0.5))
    assert t.holds("Greater", cast, half) is t.at_most_zero(t.sub(t.ONE, V))
    assert t.holds("LessOrEqual", cast, half) is t.at_most_zero(V)
    assert t.holds("Equal", cast, half) is t.FALSE


VALUES = st.integers(-6, 6)


def _evaluate(term: t.Term, values: dict[t.Term, int]) -> int | bool:
    """Evaluate by substituting numbers: what is left must be a constant."""
    result = t.substitute(term, {atom: t.integer(value) for atom, value in values.items()})
    return result is t.TRUE if result.kind == "bool" else t.fixed(result)  # type: ignore[return-value]


FREE = {name: t.symbol(name) for name in ("a", "b", "c")}

INTEGERS = st.recursive(
    st.one_of(
        st.sampled_from(list(FREE)).map(lambda n: (FREE[n], lambda v, n=n: v[n])),
        VALUES.map(lambda n: (t.integer(n), lambda v, n=n: n)),
    ),
    lambda children: st.one_of(
        *(
            st.tuples(children, children).map(
                lambda ab, term=term, value=value: (
                    term(ab[0][0], ab[1][0]),
                    lambda v: value(ab[0][1](v), ab[1][1](v)),
                )
            )
            for term, value in (
                (t.add, lambda a, b: a + b),
                (t.sub, lambda a, b: a - b),
                (t.mul, lambda a, b: a * b),
                (t.least, min),
                (t.most, max),
            )
        ),
        children.map(lambda a: (t.absolute(a[0]), lambda v: abs(a[1](v)))),
        st.tuples(children, st.integers(1, 4)).map(
            lambda an: (t.floordiv(an[0][0], t.integer(an[1])), lambda v: an[0][1](v) // an[1])
        ),
        st.tuples(children, st.integers(1, 4)).map(
            lambda an: (t.remainder(an[0][0], t.integer(an[1])), lambda v: an[0][1](v) % an[1])
        ),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=400)
@given(INTEGERS, INTEGERS, st.fixed_dictionaries(dict.fromkeys(FREE, VALUES)))
def test_integer_terms_mean_what_python_computes(one: tuple, other: tuple, values: dict[str, int]) -> None:
    numbers = {FREE[name]: value for name, value in values.items()}
    (a, value_a), (b, value_b) = one, other
    expected_a, expected_b = value_a(values), value_b(values)
    assert _evaluate(a, numbers) == expected_a
    for relation, expected in (
        ("Less", expected_a < expected_b),
        ("LessOrEqual", expected_a <= expected_b),
        ("Equal", expected_a == expected_b),
        ("Greater", expected_a > expected_b),
    ):
        assert _evaluate(t.holds(relation, a, b), numbers) == expected
        assert _evaluate(t.negate(t.holds(relation, a, b)), numbers) != expected
    chosen = t.choose(t.holds("Less", a, b), t.add(a, t.ONE), b)
    assert _evaluate(t.least(chosen, t.integer(3)), numbers) == min(
        expected_a + 1 if expected_a < expected_b else expected_b, 3
    )


@pytest.mark.parametrize("length", [1, 2, 5])
def test_bounds_are_sound(length: int) -> None:
    for i in range(length):
        numbers = {LENGTH: length, I: i}
        assert _evaluate(t.floordiv(I, LENGTH), numbers) == 0
        assert _evaluate(t.remainder(t.add(I, LENGTH), LENGTH), numbers) == i
        assert _evaluate(t.least(I, t.sub(LENGTH, t.ONE)), numbers) == i
        assert _evaluate(t.at_most_zero(t.sub(I, LENGTH)), numbers) is True
