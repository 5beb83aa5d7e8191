"""Random masks, on every target and for every choice of rows, give the rows that count what float64 gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from maskport.export.lowering.facts import key_paddings
from maskport.models import Mask

from ...models.mask_strategies import masks
from .canonical_models import PATTERNS, Case, check, lowered, run, run_twins

RUNS = (("cpu", run), ("cuda", run_twins), ("cuda:sm90", run_twins))
CASES = {
    "plain": Case(),
    "groups": Case(kv_heads=2, head_size=6, v_head_size=5),
    "softcap": Case(kv_heads=2, softcap=2.0, dtype="float16"),
    "bias and sink": Case(bias=(1, 4, "seq", "seq"), sink=True),
    "fixed": Case(static={"batch": 2, "seq": 7}, dtype="float16"),
    "old": Case(opset=21),
    "cache": Case(kv_heads=2, past=True),
}
slow = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def real_queries(mask: Mask, feeds: dict[str, np.ndarray], past: int, queries: int) -> np.ndarray:
    """Return which queries [B, Q] are real tokens by every tensor that says which keys are."""
    real = np.ones((len(feeds["query"]), queries), bool)
    for name, pad in key_paddings(mask):
        real &= feeds[name][:, past : past + queries] != pad
    return real


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("padding_rows", ["keep", "any"])
@slow
@given(mask=masks(4), run_index=st.integers(0, len(RUNS) - 1), seed=st.integers(0, 99))
def test_random_masks(name: str, padding_rows: str, mask: Mask, run_index: int, seed: int) -> None:
    case = replace(CASES[name], mask=str(mask))
    target, by = RUNS[run_index]
    model, _ = lowered(case, target, padding_rows=padding_rows)
    length, past = (7, 4) if case.past else (case.static.get("seq", 5 + seed % 4), 0)
    feeds = case.feeds(2, length, past=past, pattern=PATTERNS[seed % len(PATTERNS)], seed=seed)
    rows = None if padding_rows == "keep" else real_queries(mask.simplify(), feeds, past, length)
    check(case, model, feeds, rows=rows, by=by)
