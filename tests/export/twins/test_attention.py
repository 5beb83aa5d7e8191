"""Attention with stacked weights against ONNX Runtime's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from maskport.export.twins import KernelsDisagree

from .one_node import assert_close, by_onnxruntime, by_twin, normal

B, S, N, D, WIDTH = 3, 5, 2, 8, 12
HIDDEN = N * D
OP = "Attention"


def inputs_of(
    rng: np.random.Generator,
    *,
    past: int = 0,
    value: int = HIDDEN,
    bias: bool = True,
    mask: str | None = None,
    added: tuple[int, int] | None = None,
) -> dict[str, np.ndarray | None]:
    """Draw the operator's inputs."""
    total = past + S
    starts, ends = rng.integers(0, 2, B), rng.integers(2, total + 1, B)
    cumulative = [ends, np.arange(B + 1) * S, np.arange(B + 1) * total]
    masks = {
        "lengths": ends,
        "ends and starts": np.concatenate([ends, starts]),
        "cumulative": np.concatenate(cumulative),
        "keys": np.arange(total) >= starts[:, None],
        "pairs": np.maximum(rng.random((B, S, total)) < 0.6, np.arange(total) == 0),
    }
    return {
        "input": normal(rng, B, S, WIDTH),
        "weights": normal(rng, WIDTH, 2 * HIDDEN + value) / 3,
        "bias": normal(rng, 2 * HIDDEN + value) if bias else None,
        "mask": None if mask is None else masks[mask].astype(np.int32),
        "past": normal(rng, 2, B, N, past, D) if past else None,
        "added": None if added is None else normal(rng, *added, S, total),
    }


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "scale": ({}, {"scale": 0.3}),
    "causal": ({}, {"unidirectional": 1}),
    "causal, lengths": ({"mask": "lengths"}, {"unidirectional": 1}),
    "hidden sizes": ({"value": 2 * HIDDEN}, {"qkv_hidden_sizes": [HIDDEN, HIDDEN, 2 * HIDDEN]}),
    "added": ({"added": (B, N)}, {}),
    "added to all, keys": ({"added": (1, 1), "mask": "keys"}, {}),
    "past": ({"past": 4}, {}),
    "past, causal": ({"past": 4}, {"unidirectional": 1}),
    "past, causal, keys": ({"past": 4, "mask": "keys"}, {"unidirectional": 1}),
    "past, lengths": ({"past": 4, "mask": "lengths"}, {}),
    "smaller fill": ({"mask": "keys"}, {"mask_filter_value": -2.0}),
    **{
        f"mask of {mask}": ({"mask": mask}, {})
        for mask in ("lengths", "ends and starts", "cumulative", "keys", "pairs")
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_is_what_the_cpu_computes(form: str) -> None:
    given, attributes = FORMS[form]
    inputs = inputs_of(np.random.default_rng(len(form)), **given)
    outputs = 2 if inputs["past"] is not None else 1
    for actual, expected in zip(
        by_twin(OP, inputs, outputs, num_heads=N, **attributes),
        by_onnxruntime(OP, inputs, outputs, num_heads=N, **attributes),
        strict=True,
    ):
        assert_close(actual, expected, 1e-5)


@pytest.mark.parametrize(
    ("given", "attributes", "why"),
    [
        ({}, {"do_rotary": 1}, "rotary embedding has no twin"),
        ({"past": 2}, {}, "present output"),
        ({"past": 2}, {"past_present_share_buffer": 1}, "shared cache has no twin"),
    ],
)
def test_refuses_what_has_no_single_meaning(given: dict[str, Any], attributes: dict[str, Any], why: str) -> None:
    inputs = inputs_of(np.random.default_rng(0), **given)
    with pytest.raises(ValueError, match=f"com.microsoft.Attention 'node': .*{why}"):
        by_twin(OP, inputs, num_heads=N, **attributes)


def test_warns_that_no_bias_ends_the_process_on_the_cpu() -> None:
    inputs = inputs_of(np.random.default_rng(0))
    assert inputs["bias"] is not None
    with pytest.warns(KernelsDisagree, match="ends the process"):
        (actual,) = by_twin(OP, {**inputs, "bias": None}, num_heads=N)
    (expected,) = by_onnxruntime(OP, {**inputs, "bias": np.zeros_like(inputs["bias"])}, num_heads=N)
    assert_close(actual, expected, 1e-5)
