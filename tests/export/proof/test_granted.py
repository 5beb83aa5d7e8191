"""The facts that a result may take for granted: the same as those that the session checks."""

from __future__ import annotations

import numpy as np
import pytest
from maskport.export.cases.draw import Case
from maskport.export.cases.layout import Layout
from maskport.export.cases.rows import Rows
from maskport.export.proof.granted import HOLDS, WORDS, in_words, is_granted
from maskport.runtime.assumptions import CHECKS

LAYOUT = Layout.from_io(
    {"inputs": {"mask": {"role": "mask", "axes": ["batch", "seq"], "pad": 0}}, "outputs": {"y": {"axes": ["batch"]}}}
)


def granted(values: np.ndarray, check: str, layout: Layout = LAYOUT, **more: object) -> bool:
    case = Case("a", {}, "a", {"mask": values}, Rows({}, {}))
    return is_granted(case, layout, [{"input": "mask", "check": check, **more}])


@pytest.mark.parametrize("check", CHECKS)
def test_each_fact_means_what_the_session_checks(check: str) -> None:
    rng = np.random.default_rng(0)
    outcomes = set()
    for _ in range(500):
        values = rng.integers(0, 3 if check == "binary" else 2, (2, rng.integers(1, 5)))
        expected = not CHECKS[check].wrong(values, values != 0, 2).any()
        assert granted(values, f"{check}:2" if check == "length_le" else check) == expected, values
        outcomes.add(expected)
    assert outcomes == {True, False}


def test_every_fact_of_the_session_is_known_and_has_words() -> None:
    assert set(HOLDS) == set(WORDS) == set(CHECKS)
    assert in_words({"input": "m", "check": "length_le:512"}) == "m is no longer than 512"


def test_a_fact_of_nothing_that_is_drawn_is_kept_to_by_nothing() -> None:
    assert not granted(np.ones((2, 2), int), "unheard_of")
    case = Case("a", {}, "a", {}, Rows({}, {}))
    assert not is_granted(case, LAYOUT, [{"input": "other", "check": "binary"}])


def test_rows_run_along_the_axis_that_is_named() -> None:
    values = np.array([[1, 1], [0, 1]])
    assert not granted(values, "right_padded")
    assert not granted(values, "right_padded", axis="seq")
    assert granted(values, "right_padded", axis="batch")
    assert granted(values, "right_padded", axis=0)


def test_the_pad_value_tells_what_is_real() -> None:
    layout = Layout.from_io(
        {
            "inputs": {"mask": {"role": "mask", "axes": ["batch", "seq"], "pad": 1}},
            "outputs": {"y": {"axes": ["batch"]}},
        }
    )
    assert granted(np.array([[0, 0, 1]]), "right_padded", layout)
    assert not granted(np.array([[1, 0, 0]]), "right_padded", layout)
