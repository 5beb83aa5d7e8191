"""The check before export returns: each faulty module is refused, in words that say what and where; right ones pass."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from maskport.export import ExportError, export
from torch import Tensor, nn
from torch.compiler import is_exporting

from . import faulty

AXES = {0: "batch", 1: "seq"}


def inputs_of(module: nn.Module) -> dict[str, Tensor]:
    """Return an example of batch 2 and length 5 for what the module takes."""
    values = {
        "x": torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)),
        "attention_mask": torch.ones(2, 5, dtype=torch.int64),
        "y": torch.zeros(2, 5, 4),
    }
    names = type(module).forward.__code__.co_varnames[1 : type(module).forward.__code__.co_argcount]
    return {name: values[name] for name in names}


def export_of(module: nn.Module, **options: Any) -> Any:
    inputs = inputs_of(module)
    return export(module, inputs, dynamic_shapes=dict.fromkeys(inputs, AXES), **options)


# What the message must say, in its order.
FAULTS: list[tuple[type[nn.Module], dict[str, Any], list[str]]] = [
    (
        faulty.SqueezesOneRow,
        {},
        [r"at batch=1,seq=1", r"shape \[1, 1, 4\] in the file, and \[1, 1\] in PyTorch", r"return x \* 2", "branch"],
    ),
    (
        faulty.WindowForLongInputs,
        {},
        [r"at batch=2,seq=101", r"wrong by", r"at .*faulty.py:\d+ in forward: return x \* 2", r"holds for every size"],
    ),
    (
        faulty.BakedLength,
        {},
        [
            r"fails at batch=1,seq=1, and the module doesn't",
            r"'seq' \(axis 1 of 'x'\) = 5 is baked in",
            r"at .*faulty.py:\d+ in forward: return x\[:, torch.arange\(length\)\]",
            r"Take sizes from the tensors",
        ],
    ),
    (
        faulty.BakedBatch,
        {},
        [r"fails at batch=1,seq=1", r"'batch' \(axis 0 of 'x'\) = 2 is baked in", r"x\[torch.arange\(rows\)\] \* 2"],
    ),
    (
        faulty.BakedShape,
        {},
        [r"shape \[1, 5, 4\] in the file, and \[1, 1, 4\] in PyTorch", r"'seq' \(axis 1 of 'x'\) = 5 is baked in"],
    ),
    (
        faulty.DropsMask,
        {},
        [r"'attention_mask' has no effect in the exported file", r"moves valid rows in PyTorch; no node .* reads it"],
    ),
    (
        faulty.DropsMaskOfCausal,
        {},
        [r"'attention_mask' has no effect in the exported file", r"Use the tensor in tensor operations on every path"],
    ),
    (faulty.IgnoresMask, {}, [r"'attention_mask' has no effect, in the module neither", r"unused=\[...\]"]),
    (faulty.NeverReads, {}, [r"'y' has no effect, in the module neither", r"Leave it out of example_inputs"]),
    (faulty.LosesWindow, {}, [r"at batch=2,seq=121 'output' is wrong by", r"holds for every size"]),
    (faulty.OtherValue, {}, [r"at the example 'output' is wrong by", r"the last node before it is 'node_mul' \(Mul\)"]),
    (faulty.OtherType, {}, [r"has dtype float64 in the file, and float32 in PyTorch", r"return x.double\(\)"]),
    (faulty.InvertedMask, {}, [r"at the example 'output' is wrong by", r"largest at \[\d, \d, \d\]: "]),
    (
        faulty.Textbook,
        {"dtype": "float16"},
        [
            r"at the example the file gives NaN in 40 of 40 numbers of 'output' on valid rows",
            r"at .*faulty.py:\d+ in forward: scores = scores \+ padding",
            r"became infinite in the file; 0 \* inf is NaN",
            r"Fill, don't add: scores.masked_fill",
        ],
    ),
    (
        faulty.InfiniteMaskTwice,
        {"opset_version": 18},
        [r"mask=(left|holes) the file gives NaN", r"made by node '.*' \(Softmax\)", r"scaled_dot_product_attention"],
    ),
    (
        faulty.OverTheBatch,
        {},
        [
            r"the rows of a batch read each other, in PyTorch too: row \d of batch=",
            r"attention is nn.MultiheadAttention without batch_first: it takes \[seq, batch, width\]",
            r"mixes_rows=True",
        ],
    ),
]


@pytest.mark.parametrize(("fault", "options", "said"), FAULTS, ids=[fault.__name__ for fault, *_ in FAULTS])
def test_a_fault_is_refused(fault: type[nn.Module], options: dict[str, Any], said: list[str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = tmp_path / "m.onnx"
    with pytest.raises(ExportError) as caught:
        export_of(fault(), path=path, **options)
    message = str(caught.value)
    assert re.search(r"[\s\S]*?".join(said), message), message
    assert len(message.splitlines()) <= 10
    assert max(map(len, message.splitlines())) <= 250
    assert not path.exists()


@pytest.mark.parametrize(("fault", "options", "said"), FAULTS, ids=[fault.__name__ for fault, *_ in FAULTS])
def test_nothing_but_the_check_refuses_it(fault: type[nn.Module], options: dict[str, Any], said: list[str]) -> None:
    exported = export_of(fault(), check=False, **options)
    assert exported.checked is None
    assert "maskport.certificate" not in exported.model.metadata_props
    assert json.loads(exported.model.metadata_props["maskport.pad_safe"])["ok"] is False


def test_outputs_that_come_and_go_are_refused() -> None:
    class Sometimes(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return (x * 2, x) if is_exporting() else x * 2

    with pytest.raises(ExportError, match=r"Sometimes returns 1 tensors in PyTorch, and the file has the outputs outp"):
        export_of(Sometimes())


def test_a_module_that_fails_on_its_own_example_is_told_so() -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if not is_exporting():
                raise ValueError("not today")
            return x * 2

    with pytest.raises(ExportError, match=r"Fails: the module itself fails on the example inputs: ValueError: not tod"):
        export_of(Fails())


def test_what_is_meant_can_be_said() -> None:
    torch.manual_seed(0)
    assert export_of(faulty.NeverReads(), unused=["y"]).checked is not None
    assert export_of(faulty.OverTheBatch(), mixes_rows=True).checked is not None
    with pytest.raises(ExportError, match=r"unused has 'z'; the inputs are x, y"):
        export_of(faulty.NeverReads(), unused=["z"])
