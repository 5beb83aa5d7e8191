"""What is sent to another process arrives as it was."""

from __future__ import annotations

import os
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from maskport.tools.child import wire

VALUES: dict[str, Any] = {
    "numbers": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "more than a pipe holds": np.arange(1 << 20, dtype=np.int64),
    "half": np.array([1.5, np.nan, np.inf, -0.0], np.float16),
    "bfloat16": np.array([[1.5, -2.0]], ml_dtypes.bfloat16),
    "booleans": np.array([True, False]),
    "without axes": np.array(7, np.int32),
    "empty": np.zeros((0, 3), np.float32),
    "not in C order": np.arange(6.0).reshape(2, 3).T,
    "text": np.array([["a", "ü"], ["", "\n"]], object),
    "a sequence": [np.ones(2), np.zeros((1, 1), np.int8)],
    "a map": [{3: 0.5, 4: 1.5}],
    "names": {"x": np.ones(3, np.float32), "y": None},
}


def sent(said: Any, value: Any) -> tuple[Any, Any]:
    """Send a message through a pipe and read it."""
    out, into = os.pipe()
    with os.fdopen(out, "rb", buffering=0) as source, os.fdopen(into, "wb", buffering=0) as target:
        writer = threading.Thread(target=wire.send, args=(target, said, value))
        writer.start()
        found = wire.receive(source)
        writer.join()
    return found


def same(one: Any, two: Any) -> bool:
    """Whether two values are the same in types, shapes and bits."""
    if isinstance(one, np.ndarray):
        alike = isinstance(two, np.ndarray) and one.dtype == two.dtype and one.shape == two.shape
        return alike and (one.tolist() == two.tolist() if one.dtype == object else one.tobytes() == two.tobytes())
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(value, two[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_arrives_as_it_was(name: str) -> None:
    said, value = sent({"error": None, "names": ["y"]}, VALUES[name])
    assert said == {"error": None, "names": ["y"]}
    assert same(VALUES[name], value)


def test_the_end_of_the_other_side_is_told() -> None:
    out, into = os.pipe()
    os.close(into)
    with os.fdopen(out, "rb", buffering=0) as source, pytest.raises(EOFError):
        wire.receive(source)
