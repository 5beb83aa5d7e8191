"""Two layers of attention with random masks: what optimizing makes of them gives the rows that count what they gave."""

from __future__ import annotations

import os

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from maskport.export.lowering.facts import key_paddings
from maskport.models import Mask

from ...models.mask_strategies import masks
from .token_models import PATTERNS, SIZES, TOLERANCE, agree_on, feeds, made_by, mask_model, runner

# By target: options, and what is allowed per unit of the largest value.
FORMS = {
    "cpu, any": ("cpu", {"padding_rows": "any"}, TOLERANCE),
    "cpu, keep": ("cpu", {"padding_rows": "keep"}, TOLERANCE),
    "cuda": ("cuda:sm80", {"padding_rows": "any"}, TOLERANCE),
    "cuda, float16": ("cuda:sm90", {"padding_rows": "any", "dtype": "float16"}, 2e-2),
}
# A failing mask is small as it is: what shrinks it would run for minutes.
drawn = settings(
    max_examples=int(os.environ.get("MASKPORT_EXAMPLES", "6")),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# Beside the masks that are drawn: padding of each kind with something else.
OFTEN = (
    "padding(m)",
    "causal & padding(m)",
    "padding(m) & padding(doc)",
    "padding(m != 1) & window(1, 1)",
    "segments(doc) & padding(m)",
    "causal & segments(doc) & padding(m)",
    "query_padding(m) & padding(m) & chunked(2)",
    "padding(m) & dense(d)",
)
MORE = ("padding(m)", "padding(doc)", "causal & padding(m)")


def valid(mask: Mask, inputs: dict[str, np.ndarray], padding_rows: str) -> np.ndarray:
    """Return the queries [B, S] that have a key and, where padding may change, are real tokens."""
    batch, length = inputs["m"].shape
    dense = mask.dense(length, length, **{name: inputs[name] for name in mask.tensors})
    rows = np.broadcast_to(np.asarray(dense), (batch, 1, length, length)).any(-1)[:, 0]
    if padding_rows != "keep":
        for name, pad in key_paddings(mask.simplify()):
            rows = rows & (inputs[name] != pad)
    return rows


def compared(mask: Mask, form: str, seed: int, *, cases: int = 3) -> None:
    target, options, tolerance = FORMS[form]
    source = mask_model(mask, layers=2)
    result = made_by(source, target, **options)
    assert len(result.sites) == 2 or result.notes
    run_source, run_result = runner(ir.from_proto(source)), runner(result.model)
    for number in range(cases):
        batch, length = SIZES[number % len(SIZES)]
        inputs = feeds(source, batch, length, PATTERNS[(seed + number) % len(PATTERNS)], seed)
        rows = valid(mask, inputs, str(options["padding_rows"]))
        before, after = run_source(inputs)["y"], run_result(inputs)["y"]
        assert np.isfinite(after).all()
        agree_on(rows, before, after, tolerance, f"{mask}, {form}, {batch}x{length}, seed {seed}")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", OFTEN)
def test_masks_with_padding(text: str, form: str) -> None:
    compared(Mask.parse(text), form, 0, cases=2 * len(PATTERNS))


@pytest.mark.parametrize("form", FORMS)
@drawn
@given(mask=masks(4), seed=st.integers(0, 99))
@example(mask=Mask.parse("causal(past - 1)"), seed=0)
def test_random_masks(form: str, mask: Mask, seed: int) -> None:
    compared(mask, form, seed)


@drawn
@given(
    mask=masks(4), extra=st.sampled_from(["padding(m)", "padding(doc)", "causal & padding(m)"]), seed=st.integers(0, 99)
)
def test_random_masks_beside_padding(mask: Mask, extra: str, seed: int) -> None:
    for form in FORMS:
        compared(mask & Mask.parse(extra), form, seed)
