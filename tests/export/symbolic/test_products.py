"""Products of queries and keys, and of weights and values, by every operator that multiplies matrices."""

from __future__ import annotations

import pytest
from maskport.export import inspect

from .attention_text import HEADS, SIZE, attention

CAUSAL = "c = LessOrEqual(keys, queries)\n masked = Where(c, x, inf)"
SCORES = {
    "MatMul": "x = Mul(raw, scale)",
    "Einsum": 'e = Einsum<equation="bhqd,bhkd->bhqk">(q, k)\n x = Mul(e, scale)',
    "Einsum of other axes": (
        "heads_last = Transpose<perm=[0,2,1,3]>(k)\n"
        'e = Einsum<equation="b h q d, b k h d -> b h q k">(q, heads_last)\n x = Mul(e, scale)'
    ),
    "FusedMatMul": "x = com.microsoft.FusedMatMul<transB=1, alpha=0.35355339>(q, k)",
}
VALUES = {
    "MatMul": "y = MatMul(w, v)",
    "Einsum": 'y = Einsum<equation="bhqk,bhkd->bhqd">(w, v)',
    "FusedMatMul": "y = com.microsoft.FusedMatMul(w, v)",
}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("scores", SCORES)
def test_products(scores: str, values: str) -> None:
    report = inspect(attention(f"{SCORES[scores]}\n{CAUSAL}", "", after=VALUES[values]))
    assert report.unlifted == ()
    (site,) = report.sites
    assert (site.q_heads, site.kv_heads, site.head_size, str(site.mask)) == (HEADS, HEADS, SIZE, "causal")
    assert site.scale == pytest.approx(SIZE**-0.5)
