"""Modules that PyTorch exports without a word, and whose file is wrong: contracts see it without the module."""

from __future__ import annotations

import pytest
import torch
from maskport.export import export
from maskport.tools.contracts import contracts_of
from torch import nn

from ...export import faulty

AXES = {0: "batch", 1: "seq"}


def exported(module: nn.Module, dtype: torch.dtype = torch.float32) -> bytes:
    inputs = {"x": torch.randn(2, 5, 4, dtype=dtype)}
    if "attention_mask" in module.forward.__annotations__:
        inputs["attention_mask"] = torch.ones(2, 5, dtype=torch.int64)
    made = export(module.eval(), inputs, dynamic_shapes=dict.fromkeys(inputs, AXES), check=False)
    return made.serialize()


@pytest.mark.parametrize(
    ("module", "dtype", "contract", "told"),
    [
        (faulty.IgnoresMask(), torch.float32, "input-matters/attention_mask", "it has no effect"),
        (faulty.DropsMask(), torch.float32, "padding-invariance", "other tokens at padding move"),
        (faulty.InvertedMask(), torch.float32, "padding-invariance", "other tokens at padding move"),
        (faulty.OverTheBatch(), torch.float32, "batch-invariance", "in another row of the batch"),
        (faulty.InfiniteMaskTwice(), torch.float32, "empty-rows", "NaN in"),
        (faulty.Textbook(), torch.float16, "finite-rows", "NaN in"),
        (faulty.BakedLength(), torch.float32, "lengths-free", "it fails at batch=1,seq=1, which it declares free"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_the_fault_is_told(module: nn.Module, dtype: torch.dtype, contract: str, told: str) -> None:
    torch.manual_seed(0)
    verdict = contracts_of(exported(module, dtype))
    assert not verdict.ok
    found = {failure.name: failure for failure in verdict.failures}
    assert contract in found
    assert told in str(found[contract].why)
