"""Small models for tests of passes, in ONNX's text form, and what they compute."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import numpy_helper
from onnx_ir.passes import InPlacePass
from onnx_ir.passes.common import RemoveUnusedNodesPass, ShapeInferencePass


def model_of(text: str, *, opset: int = 24, **constants: np.ndarray) -> ir.Model:
    """Return ``g (inputs) => (outputs) { nodes }`` as a model with its shapes, and with constants by name."""
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1]>\ng {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    model = ir.from_proto(proto)
    ShapeInferencePass()(model)
    return model


def operators(model: ir.Model) -> list[str]:
    """Return the operators in order, without constants."""
    return [node.op_type for node in model.graph.all_nodes() if node.op_type != "Constant"]


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run a model as it is."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    data = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, feeds)]


def fused(pass_: InPlacePass, model: ir.Model, feeds: dict[str, np.ndarray], *, atol: float = 1e-5) -> list[str]:
    """Run a pass that must change a model and not its outputs; return the operators that it leaves."""
    before = run(model, feeds)
    names = [value.name for value in model.graph.outputs]
    assert pass_(model).modified
    RemoveUnusedNodesPass()(model)
    assert [value.name for value in model.graph.outputs] == names
    for old, new in zip(before, run(model, feeds), strict=True):
        assert old.dtype == new.dtype
        np.testing.assert_allclose(new.astype(np.float32), old.astype(np.float32), atol=atol)
    assert not pass_(model).modified
    return operators(model)


def untouched(pass_: InPlacePass, model: ir.Model) -> None:
    """Assert that a pass leaves a model as it is."""
    before = str(ir.to_proto(model))
    assert not pass_(model).modified
    assert str(ir.to_proto(model)) == before


def drawn(*shape: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    """Return random numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
