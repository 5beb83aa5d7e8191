"""The check lets right modules through, whatever they take, and tells what it found."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from maskport.export import Exported, ExportError, export, twins
from maskport.models import Decoder, DecoderLayer, Encoder, EncoderLayer, MaskedMultiHeadAttention
from maskport.models.masks import Adjacency, Causal, Dense, KeyPadding, Mask, Prefix, Segments, Window
from torch import Tensor, nn
from torch.compiler import is_exporting

AXES = {0: "batch", 1: "seq"}
MEMORY = {0: "batch", 1: "memory_seq"}
ONNX_NAMES = {"float16": "FLOAT16", "bfloat16": "BFLOAT16", "float64": "DOUBLE"}
PADDED = Causal() & KeyPadding("attention_mask")


def encoder(mask: Mask) -> nn.Module:
    return Encoder(EncoderLayer(16, 2, 32, mask=mask), num_layers=2)


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.int64)


class TorchEncoder(nn.Module):
    """torch.nn's encoder; without gradients and in evaluation mode it takes a fused path that has no ONNX form."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, src: Tensor, key_padding_mask: Tensor) -> Tensor:
        return self.encoder(src, src_key_padding_mask=key_padding_mask)


class TorchCausal(nn.Module):
    """The mask is an input. Without `is_causal` torch.nn looks at its values, and can't be exported."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, src: Tensor, mask: Tensor) -> Tensor:
        return self.encoder(src, mask=mask, is_causal=False)


class Continues(nn.Module):
    """Attention with a cache: the mask covers the past and the queries."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = MaskedMultiHeadAttention(16, 2, mask=PADDED)

    def forward(self, src: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor) -> Any:
        return self.attention(src, past_key_value=(k, v), use_cache=True, attention_mask=attention_mask)


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(50, 8), nn.Embedding(20, 8)

    def forward(self, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        return self.tokens(input_ids) + self.positions(position_ids)


class Pools(nn.Module):
    """Its output has no row for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = encoder(KeyPadding("attention_mask"))

    def forward(self, src: Tensor, attention_mask: Tensor) -> Tensor:
        keep = (attention_mask != 0)[..., None]
        return (self.encoder(src, attention_mask=attention_mask) * keep).sum(1) / keep.sum(1).clamp(min=1)


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        return self.convolution(image).mean((2, 3))


class Similarity(nn.Module):
    """Every row of one batch meets every row of another."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x @ y.T


class LikeShape(nn.Module):
    """Only the shape of one input matters."""

    def forward(self, x: Tensor, like: Tensor) -> Tensor:
        return x[:, None].expand(-1, like.shape[1], -1).clone()


class Scales(nn.Module):
    """Numbers as tensors without axes."""

    def forward(self, x: Tensor, temperature: Tensor, shift: Tensor, negate: Tensor) -> Tensor:
        return torch.where(negate, -1, 1) * x / temperature + shift


SRC, MASK = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0)), ones(2, 5)
CACHE = {0: "batch", 2: "past"}
RIGHT: dict[str, tuple[Any, dict[str, Tensor], dict[str, dict[int, str]]]] = {
    "segments": (lambda: encoder(Segments("segment_ids")), {"src": SRC, "segment_ids": 0 * ones(2, 5)}, {}),
    "prefix": (
        lambda: encoder(Prefix("length")),
        {"src": SRC, "length": torch.tensor([3, 5])},
        {"src": AXES, "length": {0: "batch"}},
    ),
    "adjacency": (
        lambda: encoder(Adjacency("edges")),
        {"src": SRC, "edges": torch.eye(5, dtype=torch.int64).repeat(2, 1, 1)},
        {"src": AXES, "edges": {0: "batch", 1: "seq", 2: "seq"}},
    ),
    "dense": (
        lambda: encoder(Dense("pairs")),
        {"src": SRC, "pairs": ones(2, 1, 5, 5).bool()},
        {"src": AXES, "pairs": {0: "batch", 2: "seq", 3: "seq"}},
    ),
    "encoder and decoder": (
        lambda: Decoder(DecoderLayer(16, 2, 32, mask=PADDED, memory_mask=KeyPadding("memory_mask")), 2),
        {"tgt": SRC, "memory": SRC[:, :3], "attention_mask": MASK, "memory_mask": ones(2, 3)},
        {"tgt": AXES, "memory": MEMORY, "attention_mask": AXES, "memory_mask": MEMORY},
    ),
    "torch.nn": (TorchEncoder, {"src": SRC, "key_padding_mask": MASK < 0}, {}),
    "torch.nn with a mask": (
        TorchCausal,
        {"src": SRC, "mask": nn.Transformer.generate_square_subsequent_mask(5)},
        {"src": AXES, "mask": {0: "seq", 1: "seq"}},
    ),
    "cache": (
        Continues,
        {"src": SRC, "k": torch.randn(2, 2, 3, 8), "v": torch.randn(2, 2, 3, 8), "attention_mask": ones(2, 8)},
        {"src": AXES, "k": CACHE, "v": CACHE, "attention_mask": {0: "batch", 1: "total"}},
    ),
    "positions": (Positions, {"input_ids": ones(2, 5), "position_ids": torch.arange(5).repeat(2, 1)}, {}),
    "pooled": (Pools, {"src": SRC, "attention_mask": MASK}, {}),
    "image": (Convolution, {"image": torch.randn(2, 3, 8, 8)}, {"image": {0: "batch", 2: "height", 3: "width"}}),
    "similarity": (Similarity, {"x": SRC[:, 0], "y": SRC[0]}, {"x": {0: "texts"}, "y": {0: "images"}}),
    "only a shape": (LikeShape, {"x": SRC[:, 0], "like": SRC}, {"x": {0: "batch"}, "like": AXES}),
    "numbers": (
        Scales,
        {"x": SRC, "temperature": torch.tensor(0.5), "shift": torch.tensor(3), "negate": torch.tensor(True)},
        {"x": AXES},
    ),
    "no free axis": (lambda: encoder(PADDED), {"src": SRC, "attention_mask": MASK}, {"src": {}}),
}


@pytest.fixture(scope="module")
def exports() -> dict[str, Exported]:
    return {}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_module_passes(name: str, exports: dict[str, Exported]) -> None:
    torch.manual_seed(0)
    make, inputs, shapes = RIGHT[name]
    with torch.no_grad():
        exports[name] = export(make().eval(), inputs, dynamic_shapes=shapes or dict.fromkeys(inputs, AXES))
    checked = exports[name].checked
    assert checked is not None
    assert checked.worst is not None
    assert checked.worst < 1e-5
    ran = {case.name for case in checked.cases}
    free = {axis for axes in (shapes or {"": AXES}).values() for axis in axes.values()}
    for axis in free:
        assert len({part for case in ran for part in case.split(",") if part.startswith(f"{axis}=")}) > 1


def test_what_it_found_is_told(exports: dict[str, Exported]) -> None:
    for name in ("torch.nn", "positions", "only a shape"):
        if name not in exports:
            test_a_right_module_passes(name, exports)
    notes = exports["torch.nn"].notes
    assert [note for note in notes if "rows without a key" in note and "the file gives NaN, PyTorch doesn't" in note]
    checked = exports["positions"].checked
    assert checked is not None
    assert ("batch=2,seq=33", "the module itself can't: IndexError: index out of range in self") in checked.not_run
    assert exports["only a shape"].notes[0].startswith("only the shape of 'like' matters")


def test_the_certificate_says_what_was_done(exports: dict[str, Exported]) -> None:
    if "torch.nn" not in exports:
        test_a_right_module_passes("torch.nn", exports)
    metadata = exports["torch.nn"].model.metadata_props
    certificate = json.loads(metadata["maskport.certificate"])
    assert certificate["version"] == 1
    assert certificate["how"] == f"onnxruntime {onnxruntime.__version__} on the CPU"
    assert certificate["seed"] == 0
    assert {"python", "torch", "onnx", "maskport"} <= set(certificate["versions"])
    assert "batch=2,seq=33,mask=left" in [case["name"] for case in certificate["cases"]]
    assert certificate["limits"]["float32"]["why"]
    assert json.loads(metadata["maskport.assumes"]) == {"version": 1, "assumes": []}


@pytest.mark.parametrize(
    ("mask", "ok", "side", "why"),
    [
        (Window(3, 3) & KeyPadding("attention_mask"), True, "both", "every mask implies padding(attention_mask)"),
        (Causal(), True, "right", "padding longer at the left moved valid rows by"),
        (Window(2, 2), False, None, "not proven: the mask window(2, 2) may attend padding"),
    ],
    ids=["padding", "causal", "window"],
)
def test_whether_padding_is_safe_is_proven_and_tried(mask: Mask, ok: bool, side: str | None, why: str) -> None:
    torch.manual_seed(0)
    inputs = {"src": SRC, **dict.fromkeys(mask.tensors, MASK)}
    exported = export(encoder(mask), inputs, dynamic_shapes=dict.fromkeys(inputs, AXES))
    found = json.loads(exported.model.metadata_props["maskport.pad_safe"])
    assert (found["version"], found["ok"], found["side"]) == (1, ok, side)
    assert why in found["why"]


def test_a_mask_that_implies_padding_in_a_module_that_reads_it_elsewhere_is_not_safe() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = encoder(KeyPadding("attention_mask"))

        def forward(self, src: Tensor, attention_mask: Tensor) -> Tensor:
            return self.encoder(src, attention_mask=attention_mask) + src.sum(1, keepdim=True)

    torch.manual_seed(0)
    inputs = {"src": SRC, "attention_mask": MASK}
    exported = export(Sums(), inputs, dynamic_shapes=dict.fromkeys(inputs, AXES))
    found = json.loads(exported.model.metadata_props["maskport.pad_safe"])
    assert not found["ok"]
    assert "at the right moved valid rows by" in found["why"]


@pytest.mark.parametrize("dtype", ["float16", torch.bfloat16, "float64"])
def test_another_element_type_and_the_module_is_given_back(dtype: Any) -> None:
    torch.manual_seed(0)
    module = encoder(PADDED).train()
    module.layers[0].dropout.eval()
    calls: list[torch.dtype] = []
    module.layers[1].register_forward_pre_hook(lambda _, args: calls.append(args[0].dtype))
    module.register_buffer("unused_counter", torch.arange(3))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    addresses = {name: value.data_ptr() for name, value in module.state_dict().items()}
    hooks, training = dict(module.layers[1]._forward_pre_hooks), [part.training for part in module.modules()]
    inputs = {"src": SRC, "attention_mask": MASK}
    exported = export(module, inputs, dynamic_shapes=dict.fromkeys(inputs, AXES), dtype=dtype)

    wanted = str(dtype).removeprefix("torch.")
    graph, element = exported.model.graph, ir.DataType[ONNX_NAMES[wanted]]
    floats = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    assert {weight.dtype for weight in graph.initializers.values() if weight.dtype in floats} == {element}
    assert (graph.inputs[0].dtype, graph.outputs[0].dtype) == (element, element)
    assert {str(seen).removeprefix("torch.") for seen in calls} == {wanted}
    after = module.state_dict()
    assert {name: value.data_ptr() for name, value in after.items()} == addresses
    assert all(after[name].dtype == value.dtype and torch.equal(after[name], value) for name, value in before.items())
    assert (dict(module.layers[1]._forward_pre_hooks), [part.training for part in module.modules()]) == (
        hooks,
        training,
    )
    # The file keeps its own weights.
    weight = exported.model.graph.initializers["layers.0.linear1.bias"].const_value.numpy()
    np.testing.assert_allclose(weight.astype(np.float32), before["layers.0.linear1.bias"].numpy(), atol=4e-3, rtol=4e-3)
    checked = exported.checked
    assert checked is not None
    if wanted == "bfloat16":
        assert checked.how == "onnx.reference"
        assert "ONNX Runtime has no bfloat16 on the CPU; onnx.reference ran the file instead" in exported.notes
        assert ("batch=2,seq=33,mask=left", "too large for onnx.reference") in checked.not_run
    else:
        assert checked.how.startswith("onnxruntime")
        assert not checked.not_run


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_what_a_module_writes_into_its_buffers_is_undone(dtype: str | None) -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.register_buffer("rows", torch.tensor(7))

        def forward(self, x: Tensor) -> Tensor:
            if not is_exporting():
                self.calls += 1
                self.rows = self.rows + x.shape[0]
            return x * 2

    module = Counts()
    calls, rows = module.calls, module.rows
    export(module, {"x": SRC}, dynamic_shapes={"x": AXES}, dtype=dtype)
    assert module.calls is calls
    assert module.rows is rows
    assert (calls.item(), rows.item(), calls.dtype) == (0, 7, torch.float32)


def test_a_shape_that_depends_on_other_rows_is_put_down() -> None:
    class UpToTheLongest(nn.Module):
        def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
            return x[:, : attention_mask.sum(1).max().item()] * 2

    inputs = {"x": SRC, "attention_mask": MASK}
    checked = export(UpToTheLongest(), inputs, dynamic_shapes=dict.fromkeys(inputs, AXES)).checked
    assert checked is not None
    assert (
        "rows of batch=3,seq=17,mask=holes alone",
        "the shape of an output depends on other rows",
    ) in checked.not_run


def test_a_window_too_long_to_pass_is_put_down() -> None:
    torch.manual_seed(0)
    checked = export(encoder(Window(3000, 0)), {"src": SRC}, dynamic_shapes={"src": AXES}).checked
    assert checked is not None
    why = "longer than the mask `window(3000, 0)` (3000); more than 2048 is not run"
    assert ("seq=6001", why) in checked.not_run


def test_what_nothing_can_run_is_not_called_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(model: Any) -> Any:
        raise NotImplementedError("no such operator")

    monkeypatch.setattr(twins, "evaluator", fails)
    exported = export(nn.Linear(3, 3), (torch.ones(2, 4, 3),), dynamic_shapes={"input": AXES}, dtype="bfloat16")
    assert exported.checked is not None
    assert (exported.checked.how, exported.checked.cases) == ("nothing", [])
    assert exported.notes[0].startswith("the file was not run: ONNX Runtime has no bfloat16 on the CPU")
    certificate = json.loads(exported.model.metadata_props["maskport.certificate"])
    assert certificate["how"] == "nothing"
    assert not json.loads(exported.model.metadata_props["maskport.pad_safe"])["ok"]


def test_an_unknown_element_type_is_refused() -> None:
    with pytest.raises(ExportError, match=r"dtype is 'half'; give one of float16, bfloat16, float32, float64, or None"):
        export(nn.Linear(2, 2), (torch.ones(2, 2),), dtype="half")


def test_a_size_that_nothing_could_be_checked_at_is_refused() -> None:
    class OneLength(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if not is_exporting() and x.shape[1] != 5:
                raise ValueError("I take five tokens")
            return x * 2

    with pytest.raises(ExportError) as caught:
        export(OneLength(), {"x": SRC}, dynamic_shapes={"x": AXES})
    assert "nothing could be checked at another size of 'batch'" in str(caught.value)
    assert "the module itself can't: ValueError: I take five tokens" in str(caught.value)


def test_one_tensor_given_twice_is_two_inputs() -> None:
    class Difference(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x - 2 * y

    exported = export(Difference(), {"x": SRC, "y": SRC}, dynamic_shapes={"x": AXES, "y": AXES})
    assert all(value.uses() for value in exported.model.graph.inputs)


def test_what_hides_a_key_can_be_said() -> None:
    class Hides(nn.Module):
        def forward(self, src: Tensor, hidden_mask: Tensor) -> Tensor:
            scores = (src @ src.mT).masked_fill(hidden_mask[:, None, :] == 2, -1e9)
            return scores.softmax(-1) @ src

    inputs = {"src": SRC, "hidden_mask": MASK}
    exported = export(Hides(), inputs, dynamic_shapes=dict.fromkeys(inputs, AXES), pads={"hidden_mask": 2})
    assert json.loads(exported.model.metadata_props["maskport.io"])["inputs"]["hidden_mask"]["pad"] == 2
    with pytest.raises(ExportError, match=r"pads has 'x'; inputs are src, hidden_mask"):
        export(Hides(), inputs, pads={"x": 2})
