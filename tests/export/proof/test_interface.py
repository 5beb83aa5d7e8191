"""Inputs and outputs of files that carry no metadata."""

from __future__ import annotations

import json

import numpy as np
import onnx_ir as ir
import pytest
from maskport.export import ProofFailed
from maskport.export.cases.draw import Size
from maskport.export.cases.layout import Sum
from maskport.export.errors import ExportError
from maskport.export.proof.ids import bound_of
from maskport.export.proof.interface import Interface, hidden_tensors, interface_of
from maskport.export.proof.side import side_of
from maskport.models.masks import Mask

from .graphs import model, proof


def interface(source: ir.Model, *masks: str) -> Interface:
    parsed = [Mask.parse(mask) for mask in masks]
    hidden = hidden_tensors(source.graph, parsed)
    return interface_of(source, side_of(source, "it", as_written=True, outputs=hidden), parsed, hidden, 0)


LOOKS_UP = """
looks (int64[batch, seq] words, int64[OTHER, LENGTH] kinds, float[batch, seq, 4] added) => (float[one, two, 4] output)
{
    flat = Cast <to = 6> (words)
    a = Gather (table, flat)
    b = Gather (types, kinds)
    ab = Add (a, b)
    output = Add (ab, added)
}
"""


def looks_up(other: str = "batch", length: str = "seq") -> ir.Model:
    source = model(LOOKS_UP.replace("OTHER", other).replace("LENGTH", length))
    lookups = [node for node in source.graph if node.op_type == "Gather"]
    for node, rows in zip(lookups, (100, 3), strict=True):
        table = ir.tensor(np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32), name=f"table{rows}")
        value = ir.val(table.name, const_value=table)
        source.graph.register_initializer(value)
        node.replace_input_with(0, value)
    return source


def test_ids_stay_within_the_tables_that_they_are_looked_up_in() -> None:
    source = looks_up()
    bounds = {value.name: bound_of(value) for value in source.graph.inputs}
    assert bounds == {"words": 100, "kinds": 3, "added": None}
    found = interface(source)
    assert {name: value.role for name, value in found.layout.inputs.items()} == dict.fromkeys(bounds, "tokens")
    drawn = [found.draw(found.sizes(Size(5, 13, 1)), "ones", seed).inputs for seed in range(9)]
    assert {array.max() for array in (each["kinds"] for each in drawn)} == {2}
    assert max(each["words"].max() for each in drawn) == 99
    assert min(each["words"].min() for each in drawn) == 0


def test_the_axes_of_outputs_are_those_that_they_follow() -> None:
    assert interface(looks_up()).layout.outputs == {"output": ("batch", "seq", 4)}


@pytest.mark.parametrize(("other", "length"), [("b", "s"), ("batch", "s")])
def test_axes_of_two_names_may_be_one(other: str, length: str) -> None:
    found = interface(looks_up(other=other, length=length))
    assert (found.layout.batch, found.layout.tokens) == ("batch", ("length",))
    assert found.layout.outputs == {"output": ("batch", "length", 4)}


def test_axes_without_a_name_are_those_of_their_place() -> None:
    source = looks_up()
    for value in source.graph.inputs:
        value.shape = ir.Shape([None, None, *value.shape[2:]])  # type: ignore[index]
    found = interface(source)
    assert found.layout.outputs == {"output": ("axis 0", "axis 1", 4)}


def test_fixed_sizes_stay_fixed() -> None:
    source = looks_up()
    for value in source.graph.inputs:
        value.shape = ir.Shape([2, 7, *value.shape[2:]])  # type: ignore[index]
    found = proof(source, source)
    assert [case.name for case in found.record.cases] == ["example sizes"]


CACHED = """
cached (float[batch, new, 4] x, float[batch, past, 4] cache, int64[batch, total] attention_mask)
  => (float[batch, new, 4] output, float[batch, all, 4] present)
<int64[1] middle = {1}, float least = {-3.4e38}>
{
    present = Concat <axis = 1> (cache, x)
    turned = Transpose <perm = [0, 2, 1]> (present)
    scores = MatMul (x, turned)
    real = Cast <to = 9> (attention_mask)
    keys = Unsqueeze (real, middle)
    masked = Where (keys, scores, least)
    weights = Softmax <axis = -1> (masked)
    output = MatMul (weights, present)
}
"""


def test_the_keys_of_a_cache_and_of_this_run_are_the_length_of_the_mask() -> None:
    found = interface(model(CACHED), "padding(attention_mask)")
    assert found.layout.sums == (Sum("total", "past", "new"),)
    assert found.layout.outputs == {"output": ("batch", "new", 4), "present": ("batch", "total", 4)}
    cases = proof(model(CACHED), model(CACHED), "padding(attention_mask)").record.cases
    assert any("past=0" in case.name for case in cases)
    with pytest.raises(ProofFailed, match="'output' differs"):
        proof(model(CACHED), model(CACHED.replace("(keys, scores, least)", "(keys, scores, scores)")))


COMPUTED = """
computed (float[batch, seq, 4] x, int64[batch, seq] kind) => (float[batch, seq, 4] output)
<int64 two = {2}, int64[1] middle = {1}, float least = {LEAST}>
{
    odd = Mod (kind, two)
    real = Cast <to = 9> (odd)
    keys = Unsqueeze (real, middle)
    turned = Transpose <perm = [0, 2, 1]> (x)
    scores = MatMul (x, turned)
    masked = Where (keys, scores, least)
    weights = Softmax <axis = -1> (masked)
    output = MatMul (weights, x)
}
"""


def test_rows_without_a_key_are_found_by_tensors_that_the_source_computes() -> None:
    source, result = (model(COMPUTED.replace("LEAST", least)) for least in ("-3.4e38", "-1e4"))
    shifted = model(COMPUTED.replace("LEAST", "-3.4e38").replace("MatMul (weights, x)", "Tanh (x)"))
    assert interface(source, "padding(odd)").hidden == {"odd": ("batch", "seq")}
    # Softmax over -1e4 and scores is no mean: rows without a key differ, and may.
    proof(source, result, "padding(odd)")
    with pytest.raises(ProofFailed, match="'output' differs"):
        proof(source, shifted, "padding(odd)")


INSISTS = """
insists (float[batch, seq, 4] x) => (float[batch, chunks, 8, 4] output) <int64[4] shape = {0, -1, 8, 4}>
{ output = Reshape (x, shape) }
"""


def test_a_length_may_have_to_be_a_multiple() -> None:
    found = interface(model(INSISTS))
    assert (found.multiple, found.layout.outputs) == (8, {"output": ("batch", None, 8, 4)})
    assert {case.name for case in proof(model(INSISTS), model(INSISTS)).record.cases} >= {"batch=5,seq=16"}


def test_metadata_that_no_longer_fits_is_not_believed() -> None:
    source = looks_up()
    source.metadata_props["maskport.io"] = json.dumps(
        {"version": 1, "inputs": {"gone": {"role": "tokens", "axes": ["a", "b"]}}, "outputs": {}}
    )
    assert interface(source).layout.batch == "batch"
    source.metadata_props["maskport.io"] = "no JSON"
    with pytest.raises(ExportError, match="is no JSON"):
        interface(source)


INSISTS_ON_ONE = """
one (float[batch, seq, 4] x) => (float[batch, seq, 4] output) <int64[1] first = {0}>
{
    lone = Squeeze (x, first)
    tanh = Tanh (lone)
    table = Unsqueeze (tanh, first)
    output = Add (x, table)
}
"""
TAKES_ANY = (
    "any (float[batch, seq, 4] x) => (float[batch, seq, 4] output) { table = Tanh (x)\n output = Add (x, table) }"
)


def test_a_source_that_fails_at_any_batch_above_one_is_run_row_by_row() -> None:
    source = model(INSISTS_ON_ONE)
    found = proof(source, model(TAKES_ANY))
    assert [note.partition(":")[0] for note in found.notes] == ["the source fails at any batch above 1"]
    assert any("batch=5" in case.name for case in found.record.cases)
    with pytest.raises(ProofFailed, match="at batch=5,seq=13 'output' differs"):
        proof(source, model(TAKES_ANY.replace("Add (x, table)", "Sub (x, table)")))
    same = proof(source, source).record
    assert {name.partition(",")[0] for name, why in same.not_run if "source and result fail" in why} >= {"batch=2"}
    assert {case.name.partition(",")[0] for case in same.cases} == {"batch=1"}
