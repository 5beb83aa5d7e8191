"""Equality, implication and witnesses against brute force over all small sizes and tensors."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from maskport.models import (
    Causal,
    Chunked,
    Full,
    K,
    KeyPadding,
    Mask,
    Prefix,
    Q,
    QueryPadding,
    Row,
    Segments,
    Window,
    past,
)
from maskport.models.mask_linear import bounds, smallest

from .mask_strategies import Case, Point, cases, masks, points

slow = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


def names_of(*drawn: Mask) -> set[str]:
    return {name for mask in drawn for name in mask.tensors}


def first_difference(one: Case, other: Case, max_total: int) -> Point | None:
    names = names_of(one[0], other[0])
    return next((x for x in points(names, max_total) if one[1](x) != other[1](x)), None)


def affordable(names: set[str]) -> int:
    """Return a total of lengths that brute force can reach in a fraction of a second."""
    return {0: 10, 1: 8, 2: 6}.get(len(names), 5)


@slow
@given(cases(count=2))
def test_equality_and_witness_agree_with_brute_force(drawn: list[Case]) -> None:
    one, other = drawn
    witness = one[0].witness(other[0])
    reach = affordable(names_of(one[0], other[0]))
    found = first_difference(one, other, reach)
    assert (one[0] == other[0]) == (witness is None)
    if witness is None:
        assert found is None
        assert hash(one[0]) == hash(other[0])
    else:
        assert_is_witness(one[0], other[0])
        total = sum(witness.sizes)
        if found is not None:
            assert total <= found.q_len + found.k_len + found.past
        if total <= reach:
            assert found is not None, "brute force must find what the witness shows"


def assert_is_witness(one: Mask, other: Mask, **kwargs: bool) -> None:
    witness = one.witness(other, **kwargs)
    assert witness is not None
    sizes, b, h, q, k, tensors = witness
    values = []
    for mask in (one, other):
        attend = mask.dense(*sizes, **{name: tensors[name] for name in mask.tensors})
        values.append(bool(np.broadcast_to(attend, (1, 1, sizes.q_len, sizes.k_len))[b, h, q, k]))
    assert values[0] != values[1]


@slow
@given(cases(count=2))
def test_implies_agrees_with_brute_force(drawn: list[Case]) -> None:
    (one, means_one), (other, means_other) = drawn
    counter = next(
        (x for x in points(names_of(one, other), affordable(names_of(one, other))) if means_one(x) > means_other(x)),
        None,
    )
    if one.implies(other):
        assert counter is None
        assert (one & other) == one
        assert (one | other) == other
    else:
        assert (one & ~other) != ~Full()


@slow
@given(cases())
def test_dense_agrees_with_the_second_reading(drawn: list[Case]) -> None:
    mask, meaning = drawn[0]
    for x in itertools.islice(points(names_of(mask), 6), 0, None, 37):
        assert x.dense(mask) == meaning(x)


@slow
@given(cases(count=2))
def test_witness_in_self_attention_has_keys_for_past_and_queries(drawn: list[Case]) -> None:
    witness = drawn[0][0].witness(drawn[1][0], self_attention=True)
    if witness is not None:
        assert witness.sizes.k_len == witness.sizes.q_len + witness.sizes.past
        assert_is_witness(drawn[0][0], drawn[1][0], self_attention=True)


@settings(deadline=None)
@given(masks())
def test_laws(mask: Mask) -> None:
    assert mask == mask & mask == mask | mask == ~~mask == mask & Full() == mask | ~Full()
    assert mask & ~mask == ~Full()
    assert mask | ~mask == Full()
    assert ~Full() != Full()
    assert mask.implies(mask)
    assert (~Full()).implies(mask)
    assert mask.implies(Full())
    assert mask.witness(~mask) is not None
    assert mask.witness(mask) is None


@settings(deadline=None)
@given(cases(count=3))
def test_de_morgan_and_distribution(drawn: list[Case]) -> None:
    a, b, c = (mask for mask, _ in drawn)
    for one, other in ((~(a & b), ~a | ~b), (~(a | b), ~a & ~b), (a & (b | c), a & b | a & c), (a | a & b, a)):
        assert one == other
        assert hash(one) == hash(other)


EQUAL = [
    (Window(-1, 0), Causal()),
    (Window(-1, -1), Full()),
    (Causal() & Window(5, 9), Window(5, 0)),
    (Chunked(1), Window(0, 0)),
    (Chunked(4) & Window(3, 3), Chunked(4)),
    (Chunked(4) | Window(3, 3), Window(3, 3)),
    (Chunked(8) & Chunked(4), Chunked(4)),
    (Chunked(6) & Chunked(4) & ~Window(1, 1), ~Window(1, 1) & Chunked(4) & Chunked(6)),
    (Chunked(6) & Chunked(4) & ~Window(3, 3), ~Full()),
    (Causal(past - 1), Causal() & ~Window(0, 0)),
    (Window(0, 0, past + 3), Window(-1, 3) & ~Window(-1, 2)),
    (Window(2, 0, past - 1), Window(3, 0) & Causal(past - 1)),
    (Causal(-1) & Causal(0), Causal(-1)),
    (Causal(0) & Causal(), Causal(0)),
    (Prefix("n") & Prefix("n") + 1, Prefix("n")),
    (Prefix(K), Full()),
    (Prefix(0), ~Full()),
    (Causal(Row("nonpad") - Q) & Prefix("nonpad"), Causal(Row("nonpad") - Q)),
    (Segments("s") & Window(0, 0), Window(0, 0)),
    (Segments("s") & KeyPadding("s"), Segments("s") & QueryPadding("s")),
    (QueryPadding("m") & Window(0, 0), KeyPadding("m") & Window(0, 0)),
    (KeyPadding("m", 1) | KeyPadding("m", 2), Full()),
    (~KeyPadding("m", 1) & KeyPadding("m", 2), ~KeyPadding("m", 1)),
    (Segments("a", "b") & ~KeyPadding("a", 3) & KeyPadding("a", 4), Segments("a", "b") & ~KeyPadding("a", 3)),
]

DIFFERENT = [
    (Causal(), Causal(0)),
    (Causal(), Causal(K - Q)),
    (Causal(), Causal(past - 1)),
    (Causal(), Window(1000, 0)),
    (Window(5, 0), Window(4, 0)),
    (Window(-1, 0), Window(0, -1)),
    (Chunked(4) & Window(3, 3), Chunked(4) & Window(3, 2)),
    (Chunked(4) & Chunked(6), Chunked(2)),
    (Chunked(8192), Chunked(4096)),
    (Prefix("n"), Prefix("n") + 1),
    (Prefix("n"), Prefix("m")),
    (Causal(Row("n")), Causal(Row("n") - Q)),
    (KeyPadding("m"), QueryPadding("m")),
    (KeyPadding("m"), KeyPadding("other")),
    (KeyPadding("m"), KeyPadding("m", 1)),
    (Segments("s") & KeyPadding("s"), Segments("s")),
    (Segments("a", "b"), Segments("c", "b")),
]


@pytest.mark.parametrize(("one", "other"), EQUAL, ids=str)
def test_equal(one: Mask, other: Mask) -> None:
    assert one == other
    assert other == one
    assert hash(one) == hash(other)
    assert one.witness(other) is None


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=str)
def test_different(one: Mask, other: Mask) -> None:
    assert one != other
    assert other != one
    assert_is_witness(one, other)


def test_masks_that_no_tensor_fits_both_are_different() -> None:
    assert Segments("a", "b") != Segments("b", "a")
    assert Prefix("m") != KeyPadding("m")
    with pytest.raises(
        ValueError, match=r"one name is one tensor, but m is used as bool or int \[B, K\] and as int \[B\]"
    ):
        Prefix("m").witness(KeyPadding("m"))


def test_a_mask_is_no_other_object() -> None:
    assert Causal() != "causal"
    assert Causal() in {Window(-1, 0): "found"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Chunked(8192), Chunked(8192) & Window(8191, 8191)),
        (Chunked(8192) & Causal(), Chunked(8192) & Window(8191, 0)),
        (Chunked(2) | Window(8190, 0), Window(8190, 0) | Chunked(2)),
        (Chunked(8192) & ~Chunked(8191), ~Chunked(8191) & Chunked(8192)),
    ],
    ids=str,
)
def test_large_chunks_take_no_enumeration(one: Mask, other: Mask) -> None:
    started = time.perf_counter()
    assert one == other
    assert time.perf_counter() - started < 0.5


def test_chunks_that_meet_too_rarely_are_refused_not_guessed() -> None:
    assert Chunked(8191) & Chunked(8192) & Chunked(8193) & ~Window(8190, 8190) == ~Full()
    # Two neighbours apart in both small chunks are apart in the product's: only a walk over its boundaries shows it.
    small, large = 1048573, 1048576
    with pytest.raises(ValueError, match=r"cannot decide a mask with chunks of .* sizes that divide each other"):
        (Chunked(small * large) & Window(-1, 1) & ~Causal()).implies(Chunked(small) | Chunked(large))


def test_smallest_is_small_in_every_length() -> None:
    sizes, b, h, q, k, tensors = Causal().witness(Window(6, 0))
    assert (sizes, b, h, q, k, tensors) == ((8, 1, 0), 0, 0, 7, 0, {})
    assert Causal().witness(Window(6, 0), self_attention=True)[0] == (8, 8, 0)
    assert Chunked(8192).witness(Chunked(4096)).sizes == (1, 4097, 0)


@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
def test_absolute_bounds_meet_chunks(chunk: int) -> None:
    """Offsets without `past` bound the positions themselves, so chunks there are no longer periodic."""
    one, other = Chunked(chunk) & Prefix(4) & Causal(2), Prefix(4) & Causal(2)
    brute = any((q // chunk != k // chunk) and k < 4 and k <= q + 2 for q, k in itertools.product(range(12), range(12)))
    assert (one != other) == brute
    if brute:
        assert_is_witness(one, other)


def test_linear_bounds_and_smallest() -> None:
    # x0 >= 2*x1 - 3, x1 >= 2, x0 <= 9
    system = [(1, -2, 3), (0, 1, -2), (-1, 0, 9)]
    assert bounds(system, 0) == (1, 9)
    assert smallest(system, 2) == (1, 2)
    assert bounds([*system, (-1, 0, 0)], 0) is None
    assert bounds([(1, 0, -4)], 0) == (4, float("inf"))


def test_linear_refuses_what_it_cannot_do_exactly() -> None:
    # 2*x1 + 1 <= 3*x2 <= 2*x1 + 1: only some x1 have an integer x2.
    system = [(0, -2, 3, -1), (0, 2, -3, 1), (1, -1, 0, 0), (0, 1, 0, -3)]
    with pytest.raises(ArithmeticError, match="no exact elimination"):
        bounds(system, 0)
    assert smallest([*system, (-1, 1, 0, 0)], 3) == (4, 4, 3)
