"""A certificate is repeated: right files agree, changed ones are told, and what a file may not ask for is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from maskport.export import export, optimize
from maskport.export.certificate.claim import Certificate, CertificateError
from maskport.export.certificate.digest import digest_of
from maskport.export.certificate.fingerprint import Fingerprint
from maskport.tools import cli
from maskport.tools.errors import ToolError
from maskport.tools.mutants.mutations import MUTATIONS
from maskport.tools.mutants.plant import Ground
from maskport.tools.replaying.replay import Replay, replay
from maskport.tools.replaying.table import claim_text, replay_conclusion, replay_table
from maskport.tools.spec import load
from maskport.tools.verdict import Contract
from typer.testing import CliRunner

from ..export.proof.graphs import model, proof
from ..export.proof.test_interface import CACHED, COMPUTED, INSISTS_ON_ONE, TAKES_ANY

pytest.importorskip("torch")

KEY = "maskport.certificate"
invoke = CliRunner().invoke


def contract(replayed: Replay, name: str) -> Contract:
    return next(contract for contract in replayed.verdict.contracts if contract.name == f"certificate/{name}")


def failed(replayed: Replay) -> set[str]:
    return {check.metric for check in replayed.verdict.cases if not check.ok}


def edited(path: Path, to: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """Write a file whose certificate is another."""
    proto = onnx.load(path)
    entry = next(entry for entry in proto.metadata_props if entry.key == KEY)
    certificate = json.loads(entry.value)
    changed = change(certificate)
    entry.value = changed if isinstance(changed, str) else json.dumps(certificate)
    onnx.save(proto, to)
    return to


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    source = load("encoder")
    export(source.module, source.example_inputs, folder / "m.onnx", dynamic_shapes=source.dynamic_shapes)
    optimize(folder / "m.onnx", folder / "fast.onnx", padding_rows="zero")
    return folder


@pytest.fixture(scope="module")
def alone(files: Path) -> Replay:
    return replay(files / "m.onnx")


def test_an_export_is_repeated_without_its_module(alone: Replay) -> None:
    assert alone.ok
    assert contract(alone, "digest").status == contract(alone, "cases").status == "ok"
    assert {check.metric for check in alone.verdict.cases} == {"fingerprint"}
    claimed = {case.name for case in alone.certificate.cases if case.error is not None}
    not_run = {c.name.removeprefix("parity/"): c.why for c in alone.verdict.contracts if c.status == "not run"}
    assert {check.case for check in alone.verdict.cases} == claimed - {"the example"}
    assert "the file doesn't hold the example" in str(not_run["the example"])
    assert set(not_run) == {case.name for case in alone.certificate.cases} - claimed | {"the example"}


def test_an_export_is_repeated_beside_its_module(files: Path, alone: Replay) -> None:
    source = load("encoder")
    beside = replay(files / "m.onnx", source.module, source.example_inputs)
    assert beside.ok
    assert {check.metric for check in beside.verdict.cases} == {"max_abs"}
    assert beside.verdict.cases[0].case == "the example"
    again = {check.case: check.value for check in beside.verdict.cases}
    claimed = {case.name: case.error for case in beside.certificate.cases if case.error is not None}
    assert again == pytest.approx(claimed, abs=1e-5)
    # A fingerprint's figure is what an error is at least.
    for check in alone.verdict.cases:
        assert check.value <= again[check.case] + 1e-6


def test_another_example_is_not_taken_for_the_one_of_then(files: Path) -> None:
    source = load("encoder")
    examples = {name: value.numpy() for name, value in source.example_inputs.items()}
    assert replay(files / "m.onnx", None, examples).verdict.cases[0].case == "the example"
    examples["src"] = examples["src"] + 1
    other = replay(files / "m.onnx", None, examples)
    assert "the example" not in {check.case for check in other.verdict.cases}
    assert ("parity/the example", "the example that was given is not the one of then") in {
        (contract.name, contract.why) for contract in other.verdict.contracts
    }


def test_a_result_is_repeated_by_its_proof(files: Path) -> None:
    beside = replay(files / "fast.onnx", files / "m.onnx")
    assert beside.ok
    assert {check.rows for check in beside.verdict.cases} == {"valid", "padding", "empty"}
    assert {check.case for check in beside.verdict.cases} == {case.name for case in beside.certificate.cases}
    assert any("marked by 1 and 2" in check.case for check in beside.verdict.cases)
    assert any(case.limit == 0 and case.rows == "padding" for case in beside.verdict.cases)
    assert replay(files / "fast.onnx").ok


@pytest.mark.parametrize(("name", "dtype"), [("half", "float16"), ("brain", "bfloat16")])
def test_coarse_types_are_repeated(tmp_path: Path, name: str, dtype: str) -> None:
    source = load("encoder")
    path = tmp_path / f"{name}.onnx"
    export(source.module, source.example_inputs, path, dynamic_shapes=source.dynamic_shapes, dtype=dtype)
    assert replay(path).ok
    beside = replay(path, source.module, source.example_inputs)
    assert beside.ok
    assert beside.verdict.cases[0].case == "the example"


def test_a_result_for_cuda_is_repeated_by_twins(files: Path, tmp_path: Path) -> None:
    made = optimize(files / "m.onnx", tmp_path / "cuda.onnx", target="cuda", dtype="float16")
    assert made.checked == "twin"
    assert replay(tmp_path / "cuda.onnx").ok
    assert replay(tmp_path / "cuda.onnx", files / "m.onnx").ok


def test_a_changed_weight_is_told_by_digest_and_by_what_comes_out(files: Path, tmp_path: Path) -> None:
    model = ir.load(files / "m.onnx")
    name = next(name for name in model.graph.initializers if name.endswith("weight"))
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    model.graph.initializers[name].const_value = ir.tensor(tensor.numpy() + np.float32(1e-2), name=name)
    ir.save(model, tmp_path / "changed.onnx")
    changed = replay(tmp_path / "changed.onnx")
    assert not changed.ok
    assert contract(changed, "digest").status == contract(changed, "cases").status == "failed"
    assert failed(changed) == {"fingerprint"}
    source = load("encoder")
    assert failed(replay(tmp_path / "changed.onnx", source.module, source.example_inputs)) == {"max_abs"}


@pytest.mark.parametrize("fault", ["mask dropped", "left padding taken for right", "scale left out"])
def test_a_changed_mask_is_told_by_digest_and_by_what_comes_out(files: Path, tmp_path: Path, fault: str) -> None:
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == fault)
    made = next(Ground.each(ir.load(files / "m.onnx"))).plant(mutation.change, mutation.rewrite)
    assert made is not None
    ir.save(made[0], tmp_path / "changed.onnx")
    changed = replay(tmp_path / "changed.onnx")
    assert contract(changed, "digest").status == contract(changed, "cases").status == "failed"
    assert failed(changed) == {"fingerprint"}


def test_the_digest_is_of_what_a_model_computes(files: Path, tmp_path: Path) -> None:
    model = ir.load(files / "m.onnx")
    was = digest_of(model)
    ir.save(model, tmp_path / "beside.onnx", external_data="beside.data")
    assert digest_of(ir.load(tmp_path / "beside.onnx")) == was
    proto = onnx.load(tmp_path / "beside.onnx")
    proto.doc_string = "another"
    for node in proto.graph.node:
        node.name = f"other {node.name}"
        node.ClearField("metadata_props")
    proto.metadata_props.pop()
    assert digest_of(ir.from_proto(onnx.load_from_string(proto.SerializeToString()))) == was
    model.opset_imports[""] += 1
    assert digest_of(model) != was
    model.opset_imports[""] -= 1
    node = next(node for node in model.graph if node.op_type == "Softmax")
    node.attributes["axis"] = ir.AttrInt64("axis", 2)
    assert digest_of(model) != was


def test_what_a_result_says_is_the_same_each_time(files: Path, tmp_path: Path) -> None:
    optimize(files / "m.onnx", tmp_path / "again.onnx", padding_rows="zero")
    assert (tmp_path / "again.onnx").read_bytes() == (files / "fast.onnx").read_bytes()
    metadata = ir.load(tmp_path / "again.onnx").metadata_props
    assert len(metadata[KEY]) < 12_000


def test_what_an_earlier_release_wrote_can_not_be_repeated(files: Path, tmp_path: Path) -> None:
    def earlier(certificate: dict[str, Any]) -> None:
        del certificate["digest"], certificate["drawn_from"]
        certificate["cases"] = [{"name": case["name"], "error": case["error"]} for case in certificate["cases"]]

    path = edited(files / "m.onnx", tmp_path / "old.onnx", earlier)
    old = replay(path)
    assert not old.ok
    assert not old.verdict.failures
    assert "earlier release" in str(contract(old, "cases").why)
    done = invoke(cli.app, ["validate", "--replay", str(path)])
    assert done.exit_code == 1
    assert "Nothing was repeated" in done.stdout


def test_a_case_that_is_drawn_otherwise_is_not_run(files: Path, tmp_path: Path) -> None:
    def other(certificate: dict[str, Any]) -> None:
        certificate["seed"] = 1

    drawn = replay(edited(files / "m.onnx", tmp_path / "other.onnx", other))
    assert not drawn.ok
    assert not drawn.verdict.cases
    assert any("drawn otherwise" in str(contract.why) for contract in drawn.verdict.contracts)


def test_a_wider_limit_in_the_file_is_not_taken(files: Path, tmp_path: Path) -> None:
    def wide(certificate: dict[str, Any]) -> None:
        certificate["limits"]["float32"]["per_unit"] = 1e9

    replayed = replay(edited(files / "m.onnx", tmp_path / "wide.onnx", wide))
    assert max(check.limit for check in replayed.verdict.cases) < 1e-3


def replaced(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda certificate: certificate.__setitem__(name, value)


def widened(certificate: dict[str, Any]) -> None:
    certificate["cases"][5]["sizes"]["seq"] = 10**9


def batched(certificate: dict[str, Any]) -> None:
    certificate["cases"][5]["sizes"] = {"batch": 4096, "seq": 4096}


def deep(certificate: dict[str, Any]) -> None:
    certificate["drawn_from"]["inputs"]["src"]["shape"] = [2, 9, 10**9]


def tall(certificate: dict[str, Any]) -> None:
    certificate["cases"][5]["outputs"]["output"][0] = [10**9, 10**9]


def many(certificate: dict[str, Any]) -> None:
    certificate["cases"] = certificate["cases"][:1] * 10**6


@pytest.mark.parametrize("change", [many, widened, batched, tall], ids=lambda change: change.__name__)
def test_more_than_a_check_does_is_refused(
    files: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    with pytest.raises(CertificateError, match="refused"):
        replay(edited(files / "m.onnx", tmp_path / "m.onnx", change))


@pytest.mark.parametrize(
    "change",
    [
        lambda certificate: "{",
        lambda certificate: "[]",
        lambda certificate: '"text"',
        lambda certificate: "[" * 100_000,
        replaced("cases", [1]),
        replaced("cases", None),
        replaced("limits", []),
        replaced("seed", -1),
        replaced("seed", "0"),
        replaced("drawn_from", {"inputs": {}}),
        replaced("drawn_from", 3),
        replaced("optimized", 3),
        deep,
    ],
)
def test_a_damaged_certificate_is_one_line(
    files: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    path = edited(files / "m.onnx", tmp_path / "m.onnx", change)
    done = invoke(cli.app, ["validate", "--replay", str(path)])
    assert done.exit_code == 2, done.output
    assert len(done.stderr.splitlines()) == 1
    assert "certificate" in done.stderr


def test_a_certificate_of_another_release_is_not_guessed_at(files: Path, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="has version 99"):
        replay(edited(files / "m.onnx", tmp_path / "m.onnx", replaced("version", 99)))


def test_a_file_without_a_certificate_says_so(files: Path, tmp_path: Path) -> None:
    proto = onnx.load(files / "m.onnx")
    del proto.metadata_props[:]
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(CertificateError, match="has no certificate"):
        replay(tmp_path / "m.onnx")


def test_a_reference_of_other_inputs_is_refused(files: Path, tmp_path: Path) -> None:
    proto = onnx.load(files / "m.onnx")
    proto.graph.output[0].name = proto.graph.node[-1].output[0] = "other"
    onnx.save(proto, tmp_path / "other.onnx")
    with pytest.raises(ToolError, match="the outputs other"):
        replay(files / "fast.onnx", tmp_path / "other.onnx")


def test_a_wrong_reference_is_told(files: Path, tmp_path: Path) -> None:
    mutation = next(mutation for mutation in MUTATIONS if mutation.name == "mask dropped")
    made = next(Ground.each(ir.load(files / "m.onnx"))).plant(mutation.change, mutation.rewrite)
    assert made is not None
    ir.save(made[0], tmp_path / "other.onnx")
    other = replay(files / "fast.onnx", tmp_path / "other.onnx")
    assert contract(other, "digest").status == "ok"
    assert contract(other, "cases").status == "failed"
    assert not other.ok


def test_the_command_tells_what_was_claimed_and_what_is(files: Path) -> None:
    done = invoke(cli.app, ["validate", "--replay", str(files / "m.onnx"), "--against", "encoder"])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert max(len(line.rstrip()) for line in lines[:-1]) <= 80
    assert "23 cases, seed 0" in done.stdout
    assert next(line.split()[0] for line in lines if line.rstrip().endswith("agrees")) == "the"
    assert done.stdout.rstrip().endswith("does what its certificate says.")


def test_json_is_that_of_validate(files: Path) -> None:
    done = invoke(cli.app, ["validate", "--replay", str(files / "m.onnx"), "--json"])
    found = json.loads(done.stdout)
    assert {"format", "ok", "cases", "contracts", "claimed"} <= set(found)
    assert found["ok"] is True
    assert {"name", "ok", "metric", "value", "limit", "rows"} <= set(found["cases"][0])
    assert [c["name"] for c in found["contracts"]][:3] == [f"certificate/{n}" for n in ("digest", "versions", "cases")]
    assert found["claimed"]["cases"][0]["name"] == "the example"


def test_options_of_another_comparison_are_refused(files: Path) -> None:
    done = invoke(cli.app, ["validate", "--replay", str(files / "m.onnx"), "--quick"])
    assert done.exit_code == 2
    assert "leave out --quick" in done.stderr


def test_the_text_tells_a_failure(files: Path, tmp_path: Path) -> None:
    def moved(certificate: dict[str, Any]) -> None:
        certificate["cases"][5]["outputs"]["output"][3] += 1.0

    other = replay(edited(files / "m.onnx", tmp_path / "m.onnx", moved))
    assert [check.ok for check in other.verdict.cases].count(False) == 1
    assert "off by 1 at least" in str(other.verdict.failures[0])
    words = list(replay_table(other).columns[-1].cells)
    assert sum("differs" in word for word in words) == 1
    assert "does not do" in replay_conclusion(other, "m.onnx")
    assert "23 cases" in claim_text(other)


def test_a_fingerprint_is_kept_within_the_error_and_moves_with_a_fault() -> None:
    rng = np.random.default_rng(0)
    output = rng.standard_normal((3, 17, 64)).astype(np.float32)
    everywhere = np.ones((1, 1, 1), bool)
    then = Fingerprint.of("a", output, everywhere)
    assert then is not None
    error = 1e-4
    for off in (error, error * rng.choice([-1, 1], output.shape), error * np.sign(output)):
        now = Fingerprint.of("a", (output + off).astype(np.float32), everywhere)
        assert now is not None
        assert then.moved(now) <= error * 1.01
    output[1, 3] += 0.3 * rng.standard_normal(64).astype(np.float32)
    now = Fingerprint.of("a", output, everywhere)
    assert now is not None
    assert then.moved(now) > error
    assert Fingerprint.from_json(json.loads(json.dumps(then.to_json()))) == then


def test_a_fingerprint_of_integers_is_exact() -> None:
    output = np.arange(12).reshape(3, 4)
    then = Fingerprint.of("a", output, np.ones((1, 1), bool))
    now = Fingerprint.of("a", output + (output == 7), np.ones((1, 1), bool))
    assert then is not None
    assert now is not None
    assert then.moved(then) == 0.0
    assert then.moved(now) > 0


def test_reading_gives_what_was_written(files: Path) -> None:
    metadata = ir.load(files / "m.onnx").metadata_props
    certificate = Certificate.read(metadata)
    entry = json.loads(metadata[KEY])
    assert certificate.drawn_from is not None
    assert certificate.drawn_from.to_json() == entry["drawn_from"]
    written = [case.drawn.to_json() for case in certificate.cases if case.drawn is not None]
    assert written == [{key: case[key] for key in written[0]} for case in entry["cases"]]


def proven(folder: Path, source: ir.Model, result: ir.Model, *masks: str) -> tuple[Path, Path]:
    """Write a source, and a result with the certificate of its proof."""
    certificate = proof(source, result, *masks).certificate()
    result.metadata_props[KEY] = Certificate.write(certificate | {"digest": digest_of(result), "optimized": {}})
    paths = folder / "source.onnx", folder / "result.onnx"
    for made, path in zip((source, result), paths, strict=True):
        ir.save(made, path)
    return paths


def test_rows_that_the_source_tells_are_compared_beside_it_alone(tmp_path: Path) -> None:
    text = COMPUTED.replace("LEAST", "-3.4e38")
    source, result = proven(tmp_path, model(text), model(text.replace("-3.4e38", "-1e4")), "padding(odd)")
    beside = replay(result, source)
    assert beside.ok
    claimed = {case.name for case in beside.certificate.cases if case.error is not None}
    assert {check.case for check in beside.verdict.cases} == claimed
    lone = replay(result)
    assert not lone.ok
    assert not lone.verdict.cases
    assert any("told by 'odd', which the source computes" in str(contract.why) for contract in lone.verdict.contracts)


def test_sizes_that_depend_on_each_other_are_drawn_again(tmp_path: Path) -> None:
    source, result = proven(tmp_path, model(CACHED), model(CACHED), "padding(attention_mask)")
    for replayed in (replay(result), replay(result, source)):
        assert replayed.ok
        assert any("past=0" in check.case for check in replayed.verdict.cases)
        claimed = {case.name for case in replayed.certificate.cases if case.error is not None}
        assert {check.case for check in replayed.verdict.cases} == claimed


def test_a_source_that_takes_one_row_is_run_row_by_row(tmp_path: Path) -> None:
    source, result = proven(tmp_path, model(INSISTS_ON_ONE), model(TAKES_ANY))
    beside = replay(result, source)
    assert beside.ok
    assert any("batch=5" in check.case for check in beside.verdict.cases)
