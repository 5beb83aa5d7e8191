"""Where a file leaves another or its module is told by numbers, whatever nodes and values are called."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from maskport.export import export, optimize
from maskport.tools import validate
from maskport.tools.builtin import BUILTINS
from maskport.tools.localising.localise import first_apart
from maskport.tools.localising.module_values import values_of
from maskport.tools.localising.value_twins import Known, RealTokens, Values
from maskport.tools.mutants.mutations import MUTATIONS, WEAK
from maskport.tools.mutants.plant import Ground
from torch import nn

from ..export.symbolic.mutations import renamed_and_reordered
from .attention_graphs import attention

MASK = np.ones((2, 9), np.int64)
MASK[0, 6:] = 0
INPUTS = {"x0": np.random.default_rng(0).standard_normal((2, 9, 8)).astype("f"), "attention_mask": MASK}
RIGHT = attention(3, 3, 3)


def planted(name: str, layer: int) -> bytes:
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == name)
    grounds = list(Ground.each(ir.from_proto(RIGHT)))
    made = grounds[layer].plant(mutation.change, mutation.rewrite)
    assert made is not None
    return ir.to_proto(made[0]).SerializeToString()


@pytest.mark.parametrize(
    ("name", "layer", "mask"),
    [
        ("padding dropped", 0, "window(3, 0)"),
        ("window one too wide", 1, "window(4, 0) & padding(attention_mask)"),
        ("scale left out", 2, "window(3, 0) & padding(attention_mask)"),
    ],
)
def test_the_attention_with_the_fault_is_named(name: str, layer: int, mask: str) -> None:
    found = first_apart(planted(name, layer), RIGHT.SerializeToString(), INPUTS)
    assert found is not None
    told = found.told
    assert f"of the attention layers.{layer}.self_attn with the mask `{mask}`; up to " in told
    assert told.endswith("all is as in the reference")


def test_a_fault_is_found_behind_other_names_and_another_order(tmp_path: Path) -> None:
    fault = onnx.load_from_string(planted("padding dropped", 1))
    renamed = renamed_and_reordered(fault, tmp_path).SerializeToString()
    found = first_apart(renamed, RIGHT.SerializeToString(), INPUTS)
    assert found is not None
    told = found.told
    assert "of the attention" in told
    assert "with the mask `window(3, 0)`; up to" in told


def test_what_is_computed_in_another_way_is_no_fault() -> None:
    made = list(Ground.each(ir.from_proto(RIGHT)))[1].plant(lambda planted: planted)
    assert made is not None
    assert first_apart(ir.to_proto(made[0]).SerializeToString(), RIGHT.SerializeToString(), INPUTS) is None


def test_validation_tells_where_two_files_part() -> None:
    verdict = validate(planted("padding dropped", 1), RIGHT.SerializeToString(), quick=True)
    found = next(contract for contract in verdict.contracts if contract.name == "first-difference")
    assert found.status == "failed"
    assert "layers.1.self_attn" in str(found.why)


FAULTS = ("mask dropped", "mask shifted by one", "scale left out", f"fill weakened to {WEAK:g}")
# As it is exported, optimized, and optimized with its padding left out.
FORMS = {"exported": None, "optimized": "none", "packed": "auto"}


@pytest.fixture(scope="module", params=[("encoder", 20), ("decoder-only", 23)])
def exported(request: pytest.FixtureRequest) -> tuple[nn.Module, dict[str, torch.Tensor], list[Ground]]:
    """Return a module, its example inputs, and the attentions of its file that faults are planted in."""
    name, opset = request.param
    module, inputs, shapes = BUILTINS[name].build()
    made = export(module, inputs, dynamic_shapes=shapes, opset_version=opset, check=False)
    return module, inputs, list(Ground.each(made.model))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fault", FAULTS)
def test_where_a_file_leaves_its_module_is_told(
    exported: tuple[nn.Module, dict[str, torch.Tensor], list[Ground]], fault: str, form: str
) -> None:
    module, inputs, grounds = exported
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == fault)
    places = [(layer, ground.plant(mutation.change, mutation.rewrite)) for layer, ground in enumerate(grounds)]
    planted = [(layer, made[0]) for layer, made in places if made is not None]
    assert len(planted) == 2
    for layer, model in planted:
        if packing := FORMS[form]:
            model = optimize(model, packing=packing, check=False).model
        verdict = validate(ir.to_proto(model).SerializeToString(), module, inputs, quick=True)
        (told,) = [str(contract.why) for contract in verdict.contracts if contract.name == "first-difference"]
        assert told.startswith("the first value that leaves the module's is computed by ")
        assert re.search(rf", of the attention layers\.{layer}\.self_attn\b", told)
        assert re.search(
            r"; up to `layers\.\d\.\S+` \(\S*models/\w+\.py:\d+ in .*\) all is as in the module, at ", told
        )


def test_a_weight_that_is_not_the_modules_is_told_with_its_line(tmp_path: Path) -> None:
    module, inputs, shapes = BUILTINS["encoder"].build()
    path = tmp_path / "m.onnx"
    export(module, inputs, path, dynamic_shapes=shapes)
    with torch.no_grad():
        module.layers[1].linear1.weight[0, 0] += 1
    verdict = validate(path, module, inputs, quick=True)
    (told,) = [str(contract.why) for contract in verdict.contracts if contract.name == "first-difference"]
    assert re.search(r"is computed by (MatMul|Gemm) 'node_\w+', at \S*models/blocks\.py:\d+ in ", told)
    assert re.search(r"; up to `layers\.1\.norm1` \(\S*models/blocks\.py:\d+ in ", told)


def test_a_module_that_cannot_be_taken_apart_changes_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("hooks are refused")

    module, inputs, shapes = BUILTINS["encoder"].build()
    file = export(module, inputs, dynamic_shapes=shapes).serialize()
    with torch.no_grad():
        module.layers[1].linear1.weight[0, 0] += 1
    monkeypatch.setattr(nn.Module, "register_forward_pre_hook", fails)
    verdict = validate(file, module, inputs, quick=True)
    assert not verdict.ok
    assert "first-difference" not in {contract.name for contract in verdict.contracts}


def test_a_module_is_given_back_without_hooks() -> None:
    module, inputs, _ = BUILTINS["encoder"].build()
    found = values_of(module, lambda: module(**inputs))
    assert {known.place.module for known in found} >= {"", "layers.0.self_attn", "layers.1.linear2"}
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())


def test_values_are_twins_whatever_their_axes() -> None:
    rng = np.random.default_rng(0)
    real = np.arange(5) < np.array([[5], [3], [4]])
    heads = rng.standard_normal((3, 2, 5, 4)).astype("f")
    known = Values([Known(heads, "heads")], RealTokens([real]))
    rows = heads.transpose(0, 2, 1, 3)
    elsewhere = np.where(real[:, :, None, None], rows, 7)
    for same in (rows, rows.reshape(3, 5, 8), rows.reshape(15, 8), elsewhere, rows[real], heads.reshape(6, 5, 4)):
        assert known.twin(same) is not None
    for other in (
        rows[:, ::-1],
        rows[..., ::-1, :],
        heads * 1.001,
        rows[:1],
        np.where(real[:, None, :, None], 7, heads),
    ):
        assert known.twin(other) is None


def test_validation_of_files_that_agree_has_no_place_to_tell() -> None:
    verdict = validate(RIGHT.SerializeToString(), RIGHT.SerializeToString(), quick=True)
    assert "first-difference" not in {contract.name for contract in verdict.contracts}
