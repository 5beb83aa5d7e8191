"""A file for CUDA, or of bfloat16, is validated where there is no CUDA: executable twins stand in, and it is told."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
import torch
from maskport.export import export, optimize
from maskport.models import Causal, Encoder, EncoderLayer, KeyPadding, Mask
from maskport.runtime import ModelError, Session
from maskport.tools import validate
from maskport.tools.child.session import ChildSession
from maskport.tools.child.twin import TwinInference
from maskport.tools.verdict import TWINS
from torch import nn

PADDED = KeyPadding("attention_mask")
AXES = {0: "batch", 1: "seq"}
INPUTS = {"src": torch.randn(2, 5, 16), "attention_mask": torch.ones(2, 5, dtype=torch.int64)}


def encoder_of(mask: Mask) -> nn.Module:
    torch.manual_seed(0)
    return Encoder(EncoderLayer(16, 2, 32, mask=mask), num_layers=2)


@functools.cache
def for_cuda(mask: Mask) -> bytes:
    source = export(encoder_of(mask), INPUTS, dynamic_shapes=dict.fromkeys(INPUTS, AXES), check=False).serialize()
    result = optimize(source, target="cuda:sm80", dtype="float16", padding_rows="zero", check=False)
    return ir.to_proto(result.model).SerializeToString()


@pytest.mark.parametrize(("mask", "twins"), [(PADDED, True), (Causal() & PADDED, False)], ids=str)
def test_a_file_for_cuda_agrees_with_its_module_and_keeps_its_contracts(mask: Mask, twins: bool) -> None:
    model = for_cuda(mask)
    with pytest.raises(ModelError, match="Failed to find kernel") if twins else nullcontext():
        Session(model, device="cpu")
    verdict = validate(model, encoder_of(mask), INPUTS, contracts=True)
    assert verdict.ok, verdict.failures
    assert list(verdict.tolerances) == ["float16"]
    # Once, though parity and contracts both say it.
    assert [contract.name for contract in verdict.contracts if contract == TWINS] == ["kernels"] * twins


def test_a_file_for_cuda_that_is_wrong_is_seen() -> None:
    verdict = validate(for_cuda(Causal() & PADDED), encoder_of(PADDED), INPUTS, quick=True)
    assert not verdict.ok
    assert any(check.metric == "max_abs" and check.value > 10 * check.limit for check in verdict.cases)


def test_bfloat16_is_compared_in_its_own_rounding() -> None:
    encoder = encoder_of(PADDED)
    source = export(encoder, INPUTS, dynamic_shapes=dict.fromkeys(INPUTS, AXES), dtype="bfloat16", check=False)
    verdict = validate(source.serialize(), encoder, INPUTS)
    assert verdict.ok, verdict.failures
    ((limit, why),) = verdict.tolerances.values()
    assert list(verdict.tolerances) == ["bfloat16"]
    assert 1e-2 < limit < 0.5
    assert "float64" in why
    other = encoder_of(Causal() & PADDED)
    assert not validate(source.serialize(), other, INPUTS, quick=True).ok


def test_what_has_no_twin_either_is_refused_for_what_the_cpu_lacks(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
    g (float16[batch, seq, 4] x) => (float16[batch, seq, 4] y)
    { y = com.microsoft.LongformerAttention (x, x, x, x, x, x, x) }"""
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    with pytest.raises(ModelError, match="LongformerAttention"):
        ChildSession(path, "cpu")


def test_numbers_are_those_of_the_device_where_both_run() -> None:
    """A session of the runtime and the twins, on a graph that both can run."""
    source = export(encoder_of(PADDED), INPUTS, dynamic_shapes=dict.fromkeys(INPUTS, AXES), check=False).serialize()
    session, twin = Session(source, device="cpu"), TwinInference(source)
    feeds = {name: tensor.numpy() for name, tensor in INPUTS.items()}
    assert [(one.name, one.type, tuple(one.shape)) for one in twin.get_inputs()] == [
        (one.name, one.type, one.shape) for one in session.inputs
    ]
    assert twin.get_modelmeta().custom_metadata_map == session.metadata
    (ours,) = twin.run(None, feeds)
    assert np.abs(ours - session.run(feeds)["output"]).max() < 1e-5
