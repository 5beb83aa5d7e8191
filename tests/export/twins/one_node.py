"""One operator as a model: run by its twin, and by ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from maskport.export.twins import evaluate
from onnx import helper

HALF = 1e-3
Inputs = Mapping[str, np.ndarray | None]


def model_of(
    op: str,
    inputs: Inputs,
    outputs: int | Sequence[str] = 1,
    *,
    domain: str = "com.microsoft",
    opset: int = 21,
    **attributes: Any,
) -> onnx.ModelProto:
    """Make a model of one node; an input of None is left out, and so is an output without a name."""
    names = [f"out{i}" for i in range(outputs)] if isinstance(outputs, int) else list(outputs)
    given = {name: array for name, array in inputs.items() if array is not None}
    node_inputs = [name if array is not None else "" for name, array in inputs.items()]
    while node_inputs and not node_inputs[-1]:
        node_inputs.pop()
    node = helper.make_node(op, node_inputs, names, name="node", domain=domain, **attributes)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    graph = helper.make_graph([node], op, values, [onnx.ValueInfoProto(name=name) for name in names if name])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def feeds_of(inputs: Inputs) -> dict[str, np.ndarray]:
    """Return the inputs that are given."""
    return {name: array for name, array in inputs.items() if array is not None}


def by_twin(op: str, inputs: Inputs, outputs: int | Sequence[str] = 1, **attributes: Any) -> list[np.ndarray]:
    """Run the operator by its twin."""
    return list(evaluate(model_of(op, inputs, outputs, **attributes), feeds_of(inputs)).values())


def by_onnxruntime(op: str, inputs: Inputs, outputs: int | Sequence[str] = 1, **attributes: Any) -> list[np.ndarray]:
    """Run the operator by ONNX Runtime on the CPU."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    model = model_of(op, inputs, outputs, **attributes).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(None, feeds_of(inputs))
    return results


def normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Draw from the normal distribution."""
    return rng.standard_normal(shape).astype(dtype)


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float | None = None) -> None:
    """Assert the same type, shape and numbers, to what the type holds."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    limit = tolerance or (2e-6 if expected.dtype == np.float32 else 2e-3)
    np.testing.assert_allclose(actual.astype(np.float64), expected.astype(np.float64), rtol=limit, atol=limit)
