"""raise_opset: a model means the same at the newer operator set, or it is left as it was, with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from maskport.export.opset import raise_opset

from ..zoo.configs import EXPORTED
from ..zoo.models import Zoo


def model_of(body: str, opset: int, x: str = "float[B,S,4] x", y: str = "float[M,N,O] y") -> ir.Model:
    head = f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1, "maskport": 1]>'
    return ir.from_proto(onnx.parser.parse_model(f"{head} g ({x}) => ({y}) {{ {body} }}"))


def run(model: onnx.ModelProto | bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, feeds)]


X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
SAME = {
    "what has one signature in both": "y = Add(x, x)",
    "a reduction over some axes": "y = ReduceMean<axes=[-1]>(x)",
    "a reduction over some axes that go": "m = ReduceMax<axes=[1], keepdims=0>(x)\n a = Constant<value_ints=[1]>()\n"
    " y = Unsqueeze(m, a)",
    "a reduction over all axes": "y = ReduceL2(x)",
    "a split in equal parts": "p, q = Split<axis=-1>(x)\n y = Mul(p, q)",
    "a split by sizes": "s = Constant<value_ints=[1,3]>()\n p, q = Split<axis=-1>(x, s)\n y = Mul(p, q)",
    "more types": "s = Shape(x)\n c = Cast<to=1>(s)\n r = ReduceSum(c)\n y = Div(x, r)",
    "a newer attribute": "i = Constant<value_ints=[0,0,-1]>()\n y = Reshape(x, i)",
    "pooling without ceil_mode": "p = MaxPool<kernel_shape=[2]>(x)\n y = Neg(p)",
    "another domain's operator": "y = com.microsoft.Gelu(x)",
}


@pytest.mark.parametrize("opset", [14, 17])
@pytest.mark.parametrize("body", SAME.values(), ids=SAME)
def test_the_result_is_the_same(body: str, opset: int) -> None:
    model = model_of(body, opset)
    before = run(ir.to_proto(model), {"x": X})
    assert raise_opset(model) is None
    assert model.opset_imports[""] == 24
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    for one, two in zip(before, run(ir.to_proto(model), {"x": X}), strict=True):
        np.testing.assert_array_equal(one, two)


def test_branches_are_raised_with_the_rest() -> None:
    body = """y = If (c) <
        then_branch = yes () => (float[M,N,O] t) { t = ReduceMean<axes=[-1]>(x) },
        else_branch = no () => (float[M,N,O] e) { e = ReduceMean<axes=[1]>(x) }
    >"""
    model = model_of(body, 14, "float[B,S,4] x, bool c")
    assert raise_opset(model) is None
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    for c, axis in ((True, -1), (False, 1)):
        (y,) = run(ir.to_proto(model), {"x": X, "c": np.array(c)})
        np.testing.assert_allclose(y, X.mean(axis, keepdims=True), atol=1e-6)


def test_other_domains_metadata_and_names_stay() -> None:
    model = model_of("a = maskport.Attention(x)\n y = ReduceMean<axes=[-1]>(a)", 17)
    model.metadata_props["maskport.io"] = "{}"
    for node in model.graph:
        node.name, node.metadata_props["scope"] = f"the {node.op_type}", "layer"
    nodes = list(model.graph)
    assert raise_opset(model) is None
    assert model.metadata_props == {"maskport.io": "{}"}
    assert model.opset_imports["maskport"] == 1
    assert [node for node in model.graph if node.op_type != "Constant"] == nodes
    assert all(node.metadata_props == {"scope": "layer"} for node in nodes)
    assert [node.name for node in nodes] == ["the Attention", "the ReduceMean"]


REFUSED = {
    "scale and bias of another size": (
        "s = Constant<value_floats=[1.0, 2.0]>()\n y = GroupNormalization<num_groups=2>(x, s, s)",
        18,
        "GroupNormalization changed in operator set 21",
    ),
    "an axis with another default": ("y = DFT(x)", 17, "DFT has another signature in operator set 24"),
    "modes of other names": ("y = GridSample(x, x)", 16, "GridSample has another signature in operator set 24"),
    "pooling with ceil_mode": (
        "y = MaxPool<kernel_shape=[2], strides=[2], ceil_mode=1>(x)",
        21,
        "MaxPool changed in operator set 22",
    ),
    "an unknown operator": ("y = Nothing(x)", 17, "Nothing is no operator of set 17"),
    "an operator that is gone": (
        "s = Constant<value_floats=[1.0]>()\n y = Upsample(x, s)",
        14,
        "Upsample is no operator of",
    ),
    "an old operator set": ("y = ReduceSum<axes=[1]>(x)", 12, "operator set 12 is older than 13"),
}


@pytest.mark.parametrize(("body", "opset", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_changed_its_meaning_is_refused_and_nothing_changes(body: str, opset: int, reason: str) -> None:
    # A reduction that could be raised comes first.
    model = model_of(f"z = ReduceMean<axes=[-1]>(x)\n {body}", opset, y="float[M,N,O] y, float[B,S,P] z")
    before = ir.to_proto(model).SerializeToString()
    assert reason in str(raise_opset(model))
    assert ir.to_proto(model).SerializeToString() == before


@pytest.mark.parametrize("opset", [21, 24])
def test_what_has_the_operator_set_stays(opset: int) -> None:
    model = model_of("y = Add(x, x)", opset)
    assert raise_opset(model, 21) is None
    assert model.opset_imports[""] == opset
    assert model.ir_version == 8


def test_the_other_name_of_the_default_domain_is_known() -> None:
    proto = ir.to_proto(model_of("y = ReduceMean<axes=[-1]>(x)", 17))
    proto.opset_import[0].domain = proto.graph.node[0].domain = "ai.onnx"
    model = ir.from_proto(proto)
    assert raise_opset(model) is None
    assert {"", "ai.onnx"} & set(model.opset_imports) == {""}
    (y,) = run(ir.to_proto(model), {"x": X})
    np.testing.assert_allclose(y, X.mean(-1, keepdims=True), atol=1e-6)


def test_functions_are_to_be_inlined_first() -> None:
    model = ir.from_proto(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 17, "local": 1]> g (float[N] x) => (float[N] y) { y = local.twice(x) }
            <domain: "local", opset_import: ["": 17]> twice (x) => (y) { y = Add(x, x) }"""
        )
    )
    assert raise_opset(model) == "the model has functions, which are to be inlined first"
    assert raise_opset(model_of("y = Add(x, x)", 20), 99) == "the installed onnx knows no operator set 99"


def feeds_of(inputs: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in inputs.items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("opset", [None, 23])
@pytest.mark.parametrize("name", EXPORTED)
def test_the_zoo_gives_the_same(zoo: Zoo, name: str, opset: int | None) -> None:
    model = zoo(name, opset)
    raised = ir.load(model.path)
    assert raise_opset(raised) is None
    feeds = feeds_of(model.loaded.example_inputs)
    for one, two in zip(run(model.path.read_bytes(), feeds), run(ir.to_proto(raised), feeds), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("opset", [14, 17, 18, 20])
@pytest.mark.parametrize("name", ["bart", "deberta", "t5"])
@pytest.mark.filterwarnings("ignore")
def test_files_of_the_older_exporter_give_the_same(zoo: Zoo, tmp_path: Path, name: str, opset: int) -> None:
    module, inputs, shapes = zoo(name).loaded
    path = tmp_path / "m.onnx"
    with torch.no_grad():
        torch.onnx.export(
            module,
            kwargs=inputs,
            f=path,
            dynamo=False,
            opset_version=opset,
            input_names=list(inputs),
            dynamic_axes=dict(shapes),
        )
    module.eval()
    raised = ir.load(path)
    assert raised.opset_imports[""] == opset
    assert raise_opset(raised) is None
    feeds = feeds_of(inputs)
    for one, two in zip(run(path.read_bytes(), feeds), run(ir.to_proto(raised), feeds), strict=True):
        np.testing.assert_array_equal(one, two)
