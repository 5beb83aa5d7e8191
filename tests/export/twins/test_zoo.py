"""Whole models of transformers, as others rewrite them: what the twins compute is what ONNX Runtime or PyTorch does."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from maskport.export.twins import evaluate, lacking

from ...zoo.configs import EXPORTED

if TYPE_CHECKING:
    from ...zoo.models import Zoo

BATCH, LENGTH = 3, 20
# Padding on the left, on the right, and a hole.
MASK = np.ones((BATCH, LENGTH), np.int64)
MASK[0, :7] = MASK[1, 12:] = MASK[2, 5] = 0
# Not the vocabulary, but of what kind a token is.
KINDS = "token_type_ids"
# What onnxscript makes of these: Attention, MultiHeadAttention with a bias, SkipSimplifiedLayerNormalization, ...
FUSED = ("bert", "modernbert", "llama", "gemma3", "bart", "t5")


def session_of(model: str | bytes, saved: Path | None = None) -> ort.InferenceSession:
    """Load a model; ONNX Runtime saves what it makes of it, or leaves it as it is."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if saved is not None:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(saved)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def feeds_for(session: ort.InferenceSession) -> dict[str, np.ndarray]:
    """Draw a batch."""
    rng = np.random.default_rng(0)
    feeds = {}
    for value in session.get_inputs():
        ids = rng.integers(0, 2, MASK.shape) if value.name == KINDS else rng.integers(3, 90, MASK.shape)
        feeds[value.name] = MASK if value.name.endswith("mask") else ids
    return feeds


def assert_same(session: ort.InferenceSession, model: onnx.ModelProto) -> None:
    """Assert that the twins compute what the session does, on rows of tokens."""
    feeds = feeds_for(session)
    outputs: Mapping[str, np.ndarray] = evaluate(model, feeds)
    for value, expected in zip(session.get_outputs(), session.run(None, feeds), strict=True):
        actual = outputs[value.name]
        assert actual.shape == expected.shape
        # The kernel of Attention gives zero, not the mean, for a row whose keys are all masked by the lowest number.
        rows = MASK > 0 if expected.shape[:2] == MASK.shape else np.ones(expected.shape[:1], bool)
        np.testing.assert_allclose(actual[rows], expected[rows], rtol=0, atol=1e-5 * np.abs(expected[rows]).max())


@pytest.mark.parametrize("opset", [None, 23], ids=["default", "23"])
@pytest.mark.parametrize("name", EXPORTED)
def test_what_onnx_runtime_makes_of_a_model(zoo: Zoo, name: str, opset: int | None, tmp_path: Path) -> None:
    chosen = zoo(name, opset)
    # At opset 23 the plain export of some can't run more than one row.
    session = session_of(str(chosen.path if opset else chosen.plain), tmp_path / "fused.onnx")
    assert_same(session, onnx.load(tmp_path / "fused.onnx"))


@pytest.mark.parametrize("name", FUSED)
def test_what_onnxscript_makes_of_a_model(zoo: Zoo, name: str) -> None:
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    model, _ = optimize_for_ort(ir.load(zoo(name).plain))
    proto = ir.to_proto(model)
    assert {node.op_type for node in proto.graph.node} & {"Attention", "MultiHeadAttention"}
    assert_same(session_of(proto.SerializeToString()), proto)


@pytest.fixture(scope="module")
def packed(zoo: Zoo, tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    """BERT as ONNX Runtime's tools pack it: a model that only CUDA runs."""
    import torch
    from onnxruntime.transformers.convert_to_packing_mode import PackingMode
    from onnxruntime.transformers.fusion_options import AttentionMaskFormat, FusionOptions
    from onnxruntime.transformers.onnx_model import OnnxModel
    from onnxruntime.transformers.optimizer import optimize_model

    from ..symbolic.test_zoo_masks import Positional

    # Its tools know the attention that is written out; other tests share the module.
    module = copy.deepcopy(zoo("bert").loaded.module)
    module.set_attn_implementation("eager")
    names = ["input_ids", "attention_mask"]
    path = tmp_path_factory.mktemp("packed") / "traced.onnx"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Positional(module, names).eval(),
            (torch.from_numpy(MASK), torch.from_numpy(MASK)),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=names,
            output_names=["output"],
            dynamic_axes={name: {0: "batch", 1: "seq"} for name in [*names, "output"]},
        )
        options = FusionOptions("bert")
        options.attention_mask_format = AttentionMaskFormat.MaskIndexEnd
        options.use_multi_head_attention = True
        optimized = optimize_model(str(path), "bert", 4, 32, options, opt_level=0)
        model = OnnxModel(optimized.model)
        PackingMode(model).convert(use_symbolic_shape_infer=False)
        model.topological_sort()
    proto: onnx.ModelProto = model.model
    return proto


@pytest.mark.parametrize("half", [False, True], ids=["float32", "float16"])
def test_what_onnx_runtime_packs_is_what_the_module_computes(zoo: Zoo, packed: onnx.ModelProto, half: bool) -> None:
    import torch
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model = onnx.ModelProto()
    model.CopyFrom(packed)
    if half:
        model = convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=True)
    operators = [node.op_type for node in model.graph.node]
    assert [operators.count(f"{name}Padding") for name in ("Remove", "Restore")] == [1, 1]
    assert operators.count("PackedMultiHeadAttention") == 2
    assert lacking(model) == []
    # It takes padding on the right alone.
    mask = (np.arange(LENGTH) < np.array([[13], [1], [20]])).astype(np.int64)
    ids = np.random.default_rng(0).integers(3, 90, mask.shape)
    actual = evaluate(model, {"input_ids": ids, "attention_mask": mask})["output"]
    module = zoo("bert").loaded.module.eval()
    with torch.no_grad():
        expected = module(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))[0].numpy()
    rows = mask > 0
    limit = (2e-2 if half else 1e-5) * np.abs(expected[rows]).max()
    np.testing.assert_allclose(actual[rows], expected[rows], rtol=0, atol=limit)
    assert not actual[~rows].any()
