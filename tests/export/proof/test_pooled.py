"""Outputs without a token axis: what reads padding in the source itself can't be asked of a result."""

from __future__ import annotations

import pytest
from maskport.export import ProofFailed

from .graphs import model, proof

TEXT = """
pooled (float[batch, seq, 4] src, int64[batch, seq] attention_mask) => (float[batch, 4] pooled)
<int64[1] second = {1}, int64[1] third = {2}, int64 first = {0}, float least = {1}, float noise = {NOISE}>
{
    real = Cast <to = 9> (attention_mask)
    mask = Cast <to = 1> (real)
    keep = Unsqueeze (mask, third)
    kept = Mul (src, keep)
    hidden = Sub (least, keep)
    loud = Mul (hidden, noise)
    rows = Add (src, loud)
    kept_rows = Mul (rows, keep)
    total = ReduceSum <keepdims = 0> (kept_rows, second)
    found = ReduceSum <keepdims = 0> (keep, second)
    count = Max (found, least)
    POOL
}
"""
POOLS = {
    "the first token": "pooled = Gather <axis = 1> (rows, first)",
    "a mean of all": "pooled = ReduceMean <keepdims = 0> (rows, second)",
    "a mean of real tokens": "pooled = Div (total, count)",
}


def pooled(pool: str, noise: str = "{0}") -> object:
    return model(TEXT.replace("POOL", POOLS[pool]).replace("{NOISE}", noise))


def test_a_first_token_is_left_open_where_it_is_padding() -> None:
    source, result = pooled("the first token"), pooled("the first token", "{3}")
    found = proof(source, result)
    assert (
        "rows of 'pooled' that read padding in the source, whatever it is padded with, were not compared" in found.notes
    )
    with pytest.raises(ProofFailed, match="mask=left 'pooled' differs from the source by 3 "):
        proof(source, result, padding_rows="keep")


def test_a_mean_over_padding_stays_compared() -> None:
    with pytest.raises(ProofFailed, match="'pooled' differs from the source"):
        proof(pooled("a mean of all"), pooled("a mean of all", "{3}"))


def test_a_mean_of_real_tokens_is_compared() -> None:
    assert proof(pooled("a mean of real tokens"), pooled("a mean of real tokens", "{3}")).notes == ()
    with pytest.raises(ProofFailed, match="'pooled' differs from the source"):
        proof(pooled("a mean of real tokens"), pooled("the first token"))


def test_a_first_token_that_is_real_is_compared() -> None:
    with pytest.raises(ProofFailed, match="mask=ones 'pooled' differs from the source"):
        proof(pooled("the first token"), pooled("a mean of all"))
