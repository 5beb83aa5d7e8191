"""What PyTorch's exporter refuses, told in plain lines with the module's own line and what to write instead."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from maskport.export import ExportError, export
from torch import Tensor, nn

AXES = {0: "batch", 1: "seq"}


class BranchesOnMask(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if mask.all():
            return x
        return x * mask[..., None]


class BranchesOnNumber(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if mask.sum().item() > 3:
            x = x * 2
        return x * mask[..., None]


class LoopsOverValues(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for value in mask[0].tolist():
            x = x + 1 if value else x
        return x


class CausalBySize(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        q = x[:, None]
        return F.scaled_dot_product_attention(q, q, q, is_causal=q.shape[2] > 1)[:, 0]


class BufferOfOneSize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("causal", torch.ones(5, 5, dtype=torch.bool).tril())

    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.mT).masked_fill(~self.causal, -1e9).softmax(-1) @ x


class LooksAtMask(nn.Module):
    """torch.nn's encoder looks whether the mask is causal, unless it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.encoder(x, mask=mask[:1].T + torch.zeros(x.shape[1], x.shape[1]))


class NoHeads(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)


FAILURES: list[tuple[type[nn.Module], str, str, str]] = [
    (BranchesOnMask, "A branch on a tensor's values decides", r"if mask\.all\(\):", r"choose by torch\.where"),
    (BranchesOnNumber, "A number is read from a tensor's values", r"mask\.sum\(\)\.item\(\) > 3", "Keep it a tensor"),
    (LoopsOverValues, "from a tensor's values|on a tensor's values", r"x = x \+ 1 if value", "instead|torch.where"),
    (CausalBySize, "is_causal depends on a size", r"is_causal=q\.shape\[2\] > 1", r"or a mask: attn_mask="),
    (BufferOfOneSize, r"works for size 5 of inputs\['x'\]\.shape\[1\] only", "", r"mask\[:x\.shape\[1\]"),
    (LooksAtMask, "torch.nn's stacks look whether a mask is causal", r"self\.encoder\(x", "is_causal=False"),
    (NoHeads, r"\[batch, heads, seq, width\] only", "", r"q\[:, None\] for one head"),
]


@pytest.mark.parametrize(("module", "meaning", "line", "instead"), FAILURES, ids=[f[0].__name__ for f in FAILURES])
def test_a_failure_is_told_in_ten_plain_lines(
    module: type[nn.Module],
    meaning: str,
    line: str,
    instead: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    values: dict[str, Any] = {"x": torch.randn(2, 5, 4), "mask": torch.ones(2, 5)}
    code = module.forward.__code__
    inputs = {name: values[name] for name in code.co_varnames[1 : code.co_argcount]}
    with pytest.raises(ExportError) as caught:
        export(module().eval(), inputs, dynamic_shapes=dict.fromkeys(inputs, AXES))
    message = str(caught.value)
    lines = message.splitlines()
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 350
    assert lines[0] == f"{module.__name__} can't be exported"
    assert re.search(meaning, lines[1]), message
    if line:
        assert re.search(rf"at .*test_failures\.py:\d+ in forward: .*{line}", message), message
    assert re.search(instead, message), message
    dump = Path(message.rpartition("All of it: ")[2])
    assert dump.parent == tmp_path
    assert "Traceback" in dump.read_text(encoding="utf-8")
    assert capfd.readouterr() == ("", "")
