"""export(): names, axes and values survive, the module is given back, failures are told in plain words."""

from __future__ import annotations

import inspect
import json
import logging
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from maskport.export import Exported, ExportError, export, files
from maskport.export.tracing.module_state import evaluation
from maskport.export.tracing.traces import TRACE_KEY
from maskport.models.masks import Causal, KeyPadding, Segments
from maskport.runtime import Session
from torch import nn

BATCH_SEQ = {0: "batch", 1: "seq"}


class Padded(nn.Module):
    """torch.nn's encoder layer; the mask comes as a keyword that only ``**mask_tensors`` takes."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = Causal() & KeyPadding("keep")
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, src: torch.Tensor, *, scale: float = 1.0, **mask_tensors: torch.Tensor) -> dict[str, Any]:
        warnings.warn("a warning of the module", stacklevel=1)
        logging.getLogger("torch.onnx").warning("a record of the exporter")
        print("a printed line")
        hidden = self.layer(src, src_key_padding_mask=mask_tensors["keep"] == 0)
        return {"hidden": hidden * scale, "logits": (self.head(hidden), None)}


def inputs(batch: int = 2, seq: int = 5) -> dict[str, torch.Tensor]:
    keep = torch.ones(batch, seq, dtype=torch.int64)
    keep[0, seq // 2 + 1 :] = 0
    return {"keep": keep, "src": torch.randn(batch, seq, 8)}


@pytest.fixture(scope="module")
def module() -> nn.Module:
    torch.manual_seed(0)
    module = Padded().train()
    module.head.eval()
    return module


@pytest.fixture(scope="module")
def exported(module: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    path = tmp_path_factory.mktemp("export") / "new" / "padded.onnx"
    return export(module, inputs(), path, dynamic_shapes={"src": BATCH_SEQ, "keep": BATCH_SEQ})


def test_inputs_and_outputs_carry_the_modules_names(exported: Exported) -> None:
    assert exported.input_names == ["keep", "src"]
    assert exported.output_names == ["hidden", "logits_0"]
    shapes = [[str(dim) for dim in value.shape or ()] for value in exported.model.graph.inputs]
    assert shapes == [["batch", "seq"], ["batch", "seq", "8"]]


def test_weights_carry_the_modules_names(exported: Exported, module: nn.Module) -> None:
    assert {"head.bias", "layer.norm1.bias", "layer.self_attn.in_proj_bias"} <= set(exported.model.graph.initializers)


def test_the_file_is_valid_and_has_the_same_graph(exported: Exported) -> None:
    assert exported.path is not None
    onnx.checker.check_model(str(exported.path), full_check=True)
    assert exported.opset == onnx.load(exported.path).opset_import[0].version


@pytest.mark.parametrize(("batch", "seq"), [(1, 1), (3, 7), (2, 16)])
def test_other_sizes_agree_with_eager(exported: Exported, module: nn.Module, batch: int, seq: int) -> None:
    session = Session(exported.serialize(), device="cpu")
    given = inputs(batch, seq)
    outputs = session.run(given)
    with torch.no_grad(), evaluation(module), warnings.catch_warnings(action="ignore"):
        expected = module(**given)["hidden"]
    valid = given["keep"] != 0
    torch.testing.assert_close(outputs["hidden"][valid], expected[valid], atol=1e-5, rtol=0)


def test_the_module_is_given_back(exported: Exported, module: nn.Module) -> None:
    assert module.training
    assert module.layer.training
    assert not module.head.training
    assert "forward" not in vars(module)
    assert list(inspect.signature(module.forward).parameters) == ["src", "scale", "mask_tensors"]
    assert torch.backends.mha.get_fastpath_enabled()


def test_what_is_said_meanwhile_is_collected(
    module: nn.Module, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    exported = export(module, {**inputs(), "scale": 2.0})
    assert {"a warning of the module", "a record of the exporter", "a printed line"} <= set(exported.warnings)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


def test_a_value_that_is_no_tensor_is_fixed_in_the_file(module: nn.Module) -> None:
    plain = Session(export(module, inputs()).serialize(), device="cpu")
    doubled = Session(export(module, {**inputs(), "scale": 2.0}).serialize(), device="cpu")
    given = inputs()
    assert doubled.input_names == plain.input_names
    np.testing.assert_allclose(doubled.run(given)["hidden"], 2 * plain.run(given)["hidden"], rtol=1e-5)


def test_metadata_tells_roles_and_axes(exported: Exported) -> None:
    assert json.loads(exported.model.metadata_props["maskport.io"]) == {
        "version": 1,
        "inputs": {
            "keep": {"role": "mask", "axes": ["batch", "seq"], "pad": 0},
            "src": {"role": "tokens", "axes": ["batch", "seq", 8]},
        },
        "outputs": {"hidden": {"axes": ["batch", "seq", 8]}, "logits_0": {"axes": ["batch", "seq", 3]}},
    }


@pytest.mark.parametrize("opset", [-1, 3, 99])
def test_an_opset_that_pytorch_does_not_write_is_refused(opset: int) -> None:
    with pytest.raises(ExportError, match=f"opset_version is {opset}, but PyTorch wrote opset 18: .* give another"):
        export(nn.Linear(4, 4), (torch.randn(2, 4),), opset_version=opset)


def test_pad_is_told_only_where_every_mask_hides_it() -> None:
    class TwoMasks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.masks = nn.ModuleList([nn.Identity(), nn.Identity()])
            self.masks[0].mask = KeyPadding("a") & Segments("b")
            self.masks[1].mask = KeyPadding("a") | Causal()

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a + b

    ids = torch.ones(2, 3, dtype=torch.int64)
    module = TwoMasks()
    io = json.loads(export(module, (ids, ids)).model.metadata_props["maskport.io"])["inputs"]
    assert [(entry["role"], "pad" in entry) for entry in io.values()] == [("mask", False), ("packing", False)]
    module.masks[1].mask = KeyPadding("a") & Causal()
    io = json.loads(export(module, (ids, ids)).model.metadata_props["maskport.io"])["inputs"]
    assert [entry.get("pad") for entry in io.values()] == [0, None]


def test_no_folder_of_the_machine_is_in_the_file(exported: Exported, root: Path) -> None:
    content = exported.serialize()
    assert not re.findall(rb'File "[/\\][^"]*"|File "[A-Z]:[^"]*"', content)
    assert str(root).encode() not in content
    traces = {node.metadata_props.get(TRACE_KEY, "") for node in exported.model.graph}
    assert any(re.search(r'File "(.*/)?test_exporter.py", line \d+, in forward', trace) for trace in traces)
    assert not any("module_state.py" in trace for trace in traces)


class Double(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> Any:
        return x * 2 if y is None else (x * 2, y + 1)


def test_positional_examples_and_output_names() -> None:
    x = torch.ones(2, 3)
    single = export(Double(), (x,), dynamic_shapes={"x": BATCH_SEQ})
    assert (single.input_names, single.output_names) == (["x"], ["output"])
    pair = export(Double(), (x, x))
    assert pair.output_names == ["output_0", "output_1"]
    named = export(Double(), (x, x), output_names=["double", "next"])
    assert list(Session(named.serialize(), device="cpu").run({"x": x, "y": x})) == ["double", "next"]
    with pytest.raises(ExportError, match=r"has 2 outputs, output_names gives 1"):
        export(Double(), (x, x), output_names=["double"])


class Names(nn.Module):
    """Its outputs are named as PyTorch names values in between, and as each other's values."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, mul: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.first(mul)
        return {"linear_1": hidden * 2, "linear": self.second(hidden), "second.weight": mul * 3}


def test_a_name_that_another_value_has_is_freed() -> None:
    torch.manual_seed(0)
    module, x = Names(), torch.randn(2, 3)
    exported = export(module, {"mul": x})
    expected = module(x)
    assert exported.output_names == list(expected)
    outputs = Session(exported.serialize(), device="cpu").run({"mul": x})
    for name, value in expected.items():
        torch.testing.assert_close(outputs[name], value.detach())


def test_large_weights_go_beside_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "MAX_INLINE_BYTES", 50)
    x = torch.randn(2, 3)
    module = nn.Linear(3, 64)
    export(module, (x,), tmp_path / "m.onnx")
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx", "m.onnx.data"}
    outputs = Session(tmp_path / "m.onnx", device="cpu").run({"input": x})
    torch.testing.assert_close(outputs["output"], module(x).detach())


def test_a_path_that_cannot_be_written_is_known_before_the_work(tmp_path: Path) -> None:
    calls: list[torch.Tensor] = []
    module = nn.Linear(3, 3)
    module.register_forward_pre_hook(lambda _, args: calls.extend(args))
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match=r"is a folder; give the path of a file, such as .*model\.onnx"):
        export(module, (torch.ones(2, 3),), tmp_path)
    with pytest.raises(ExportError, match=r"can't be written: .*; give another path"):
        export(module, (torch.ones(2, 3),), tmp_path / "file" / "m.onnx")
    assert not calls


def test_opset_version_is_kept() -> None:
    assert export(Double(), (torch.ones(2, 3),), opset_version=18).opset == 18


@pytest.mark.parametrize(
    ("example", "shapes", "message"),
    [
        ({"z": torch.ones(2, 3)}, {}, r"example_inputs has z; forward takes x, y"),
        ({"y": torch.ones(2, 3)}, {}, r"example_inputs lacks x; forward takes x, y"),
        (torch.ones(2, 3), {}, r"must be a dict by parameter name or a tuple; forward takes x, y"),
        ({"x": [torch.ones(2, 3)]}, {}, r"'x' is a list of tensors; give each a parameter of its own"),
        ({"x": torch.ones(2, 3)}, {"y": {0: "b"}}, r"dynamic_shapes has 'y'; the example tensors are x"),
        ({"x": torch.ones(2, 3)}, {"x": {2: "b"}}, r"dynamic_shapes\['x'\] has 2: 'b'; .* shape \[2, 3\]"),
        (
            {"x": torch.ones(2, 3)},
            {"x": {0: 5}},
            r"dynamic_shapes\['x'\] has 0: 5; give a name to an axis of its shape",
        ),
        ({"x": torch.ones(1, 3)}, {"x": {0: "b"}}, r"'b' is 1 in the example .* size of 2 or more"),
        ({"x": torch.ones(0, 3)}, {"x": {0: "b"}}, r"'b' is 0 in the example"),
        ({"x": torch.ones(2, 3)}, {"x": {0: "n", 1: "n"}}, r"'n' is 2 in 'x' axis 0, but 3 in 'x' axis 1"),
    ],
)
def test_what_does_not_fit_is_refused_before_tracing(example: Any, shapes: Any, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        export(Double(), example, dynamic_shapes=shapes)


class Branches(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if mask.all():
            return x
        return x * mask


def test_a_failure_is_told_in_a_few_lines_with_the_modules_line(capfd: pytest.CaptureFixture[str]) -> None:
    module = Branches().train()
    with pytest.raises(ExportError) as caught:
        export(module, {"x": torch.ones(2, 3), "mask": torch.ones(2, 3)})
    message = str(caught.value)
    assert message.startswith("Branches can't be exported\n  A branch on a tensor's values decides what is run")
    assert "torch.where" in message
    dump = Path(message.rpartition("All of it: ")[2])
    assert "GuardOnDataDependentSymNode" in dump.read_text()
    dump.unlink()
    assert re.search(r"at .*test_exporter.py:\d+ in forward: if mask.all\(\):", message)
    assert len(message.splitlines()) <= 10
    assert capfd.readouterr() == ("", "")
    assert module.training
    assert "forward" not in vars(module)


def test_a_size_that_the_code_fixes_is_refused() -> None:
    class Fixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.shape[1] == 3 else x + 1

    with pytest.raises(ExportError, match=r"Fixed can't be exported\n.*for size 3 of inputs\['x'\]\.shape\[1\] only"):
        export(Fixed(), {"x": torch.ones(2, 3, 5)}, dynamic_shapes={"x": BATCH_SEQ})


def test_names_that_say_their_role() -> None:
    class Embeds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = KeyPadding("input_ids", pad=1)

        def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
            return input_ids + position_ids

    ids = torch.ones(2, 3, dtype=torch.int64)
    io = json.loads(export(Embeds(), (ids, ids)).model.metadata_props["maskport.io"])["inputs"]
    assert [entry["role"] for entry in io.values()] == ["tokens", "positions"]


def test_roles_have_the_last_word_and_are_checked() -> None:
    x = torch.ones(2, 3)
    exported = export(Double(), (x,), roles={"x": "packing"})
    assert json.loads(exported.model.metadata_props["maskport.io"])["inputs"]["x"]["role"] == "packing"
    with pytest.raises(ExportError, match=r"roles has 'x': 'token'; inputs are x, roles are tokens, mask"):
        export(Double(), (x,), roles={"x": "token"})
