"""Targets are read from what the command line writes, and errors name what there is."""

from __future__ import annotations

import pytest
from maskport.export.lowering.targets import ARCHITECTURES, Target, TargetError


def test_targets_by_name() -> None:
    assert Target.parse("cpu") == Target("cpu")
    assert Target.parse("cuda", "float16") == Target("cuda", None, "float16")
    for sm in ARCHITECTURES:
        target = Target.parse(f"cuda:sm{sm}")
        assert (target.provider, target.sm, target.lowest_sm) == ("cuda", sm, sm)
        assert Target.parse(str(target)) == target


def test_cuda_alone_is_what_runs_on_every_architecture() -> None:
    assert Target.parse("cuda").lowest_sm == min(ARCHITECTURES)


@pytest.mark.parametrize("text", ["", "gpu", "cuda:sm70", "cuda:80", "cpu:sm80", "cuda:sm 80", "CUDA", "cuda:sm080"])
def test_an_unknown_target_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match=r"cpu, cuda, cuda:sm75, .*cuda:sm120"):
        Target.parse(text)


@pytest.mark.parametrize(
    ("text", "dtype", "says"),
    [
        ("cpu", "bfloat16", "float32, float16 on CPU, not 'bfloat16'"),
        ("cuda", "int8", "float32, float16, bfloat16 on CUDA, not 'int8'"),
        ("cuda", "bfloat16", "needs sm80 or later, which 'cuda' doesn't promise"),
        ("cuda:sm75", "bfloat16", "needs sm80 or later"),
    ],
)
def test_a_type_that_does_not_run_there_is_refused(text: str, dtype: str, says: str) -> None:
    with pytest.raises(TargetError, match=says):
        Target.parse(text, dtype)
