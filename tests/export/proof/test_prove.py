"""What is proven, what is refused, and how it is told."""

from __future__ import annotations

import json
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from maskport.export import ProofFailed
from maskport.export.check.checked import Checked
from maskport.export.proof import prove

from ...tools.attention_graphs import FAR, attention
from ...tools.tiny_models import FAULTS, tiny
from .graphs import model, proof

PADDING = "padding(attention_mask)"
CAUSAL = f"causal & {PADDING}"
UNPADDED = ("attendI = And (windowI, keysI)", "attendI = Identity (windowI)")
# By the fault: what the message says, under any, zero and keep.
OUTCOMES: dict[str, tuple[str | None, str | None, str | None]] = {
    "dropped": ("differs",) * 3,
    "right padding": ("mask=left 'output' differs", "is not zero", "mask=left 'output' differs"),
    "empty rows": ("NaN or infinite in .* on rows without a key", "is not zero", "NaN .* on rows without a key"),
    "nan padding": (*("NaN or infinite in .* on padding rows",) * 2, "is NaN in .* on padding rows"),
    "other padding": (None, None, "differs .* on padding rows"),
    "baked length": ("the result fails",) * 3,
    "cut": ("has the shape",) * 3,
    "always nan": ("is NaN in",) * 3,
    "infinite": ("differs",) * 3,
}


@pytest.mark.parametrize("metadata", [True, False])
def test_a_model_is_proven_against_itself(metadata: bool) -> None:
    found = proof(tiny(metadata=metadata), tiny(metadata=metadata), PADDING)
    assert (found.checked, found.padding_rows, found.notes) == ("cpu", "any", ())
    assert found.worst is not None
    assert found.worst < 1e-6
    patterns = {case.name.rpartition("mask=")[2] for case in found.record.cases}
    assert patterns >= {"ones", "right", "left", "holes", "one token", "no token", "mixed", "nothing"}
    assert {case.name.rpartition(",mask=")[0] for case in found.record.cases} >= {"batch=5,seq=13", "batch=1,seq=1"}
    assert all(case.error is None for case in found.record.cases if "nothing" in case.name)


@pytest.mark.parametrize("padding_rows", ["any", "zero", "keep"])
@pytest.mark.parametrize("fault", OUTCOMES)
def test_a_result_with_a_fault_is_refused(fault: str, padding_rows: str) -> None:
    expected = OUTCOMES[fault][("any", "zero", "keep").index(padding_rows)]
    options: Any = {"padding_rows": padding_rows, "assumes": ["attention_mask binary"]}
    # Nothing but one fault may be wrong with a result.
    source = tiny("other padding" if padding_rows == "zero" else None)
    if expected is None:
        proof(source, tiny(fault), PADDING, **options)
    else:
        with pytest.raises(ProofFailed, match=expected):
            proof(source, tiny(fault), PADDING, **options)


def test_every_fault_is_tried() -> None:
    assert {*OUTCOMES, "half"} == set(FAULTS)


def test_padding_rows_that_must_be_zero_are() -> None:
    with pytest.raises(ProofFailed, match=r"'output' is not zero by .* \(allowed: 0\) on padding rows"):
        proof(tiny(), tiny(), PADDING, padding_rows="zero")


def test_an_unknown_rule_of_padding_rows_is_named() -> None:
    with pytest.raises(ValueError, match="padding_rows is 'none'; give one of any, zero, keep"):
        proof(tiny(), tiny(), padding_rows="none")


def test_a_result_in_half_precision_has_the_tolerance_of_half_precision() -> None:
    found = proof(tiny(), tiny("half"), PADDING, dtype="float16")
    assert found.worst is not None
    assert 1e-5 < found.worst < 1e-2
    assert set(found.record.limits) == {"float16"}


def test_a_coarse_type_inside_widens_the_limit_of_fine_outputs() -> None:
    source, result = (onnx.load_from_string(tiny()) for _ in range(2))
    last = result.graph.node[-1]
    last.output[0] = "fine"
    result.graph.node.append(onnx.helper.make_node("Cast", ["fine"], ["coarse"], to=onnx.TensorProto.FLOAT16))
    result.graph.node.append(onnx.helper.make_node("Cast", ["coarse"], ["output"], to=onnx.TensorProto.FLOAT))
    proof(source, result, PADDING, dtype="float16")
    with pytest.raises(ProofFailed, match="differs"):
        proof(source, result, PADDING)


@pytest.mark.parametrize(("ours", "theirs"), [(3, 4), (40, 41), (FAR, 40)])
def test_a_window_that_is_off_or_lost_is_seen(ours: int, theirs: int) -> None:
    with pytest.raises(ProofFailed, match="differs from the source"):
        proof(attention(ours), attention(theirs), f"window({min(ours, theirs)}, 0) & {PADDING}")


def test_a_window_that_is_too_long_to_be_seen_is_not_vouched_for() -> None:
    found = proof(attention(5000), attention(5000), f"window(5000, 0) & {PADDING}")
    assert ("length 5009", "too long here, so no row was longer than a window of 5000") in found.record.not_run


def test_padding_that_causality_hides_may_go_where_padding_is_right() -> None:
    source, result = attention(FAR), attention(FAR, replace=UNPADDED)
    for row in ("any", "keep"):
        with pytest.raises(ProofFailed, match="differs from the source"):
            proof(source, result, CAUSAL, padding_rows=row)
    found = proof(source, result, CAUSAL, assumes=["attention_mask right_padded"])
    assert "inputs were such that attention_mask is padded on the right alone" in found.notes
    assert not any("mask=left" in case.name or "mask=holes" in case.name for case in found.record.cases)
    with pytest.raises(ProofFailed, match="padding rows"):
        proof(source, result, CAUSAL, assumes=["attention_mask right_padded"], padding_rows="keep")


def test_a_mask_is_marked_by_other_numbers_than_one_unless_binary_is_granted() -> None:
    marked = ("realI = Cast <to = 9> (MASK)", "oneI = Equal (MASK, one)\n realI = Identity (oneI)")
    with pytest.raises(ProofFailed, match="marked by 1 and 2"):
        proof(attention(FAR), attention(FAR, replace=marked), CAUSAL)
    proof(attention(FAR), attention(FAR, replace=marked), CAUSAL, assumes=["attention_mask binary"])


def test_a_mask_without_effect_is_told() -> None:
    found = proof(tiny("dropped"), tiny("dropped"), PADDING)
    assert found.notes == ("nothing that was tried shows an effect of 'attention_mask', so its loss would not be seen",)


def test_the_certificate_has_the_form_of_an_exports() -> None:
    certificate = proof(tiny(), tiny(), PADDING, seed=3).certificate()
    assert set(certificate) == {*Checked("", 0).certificate(), "checked", "padding_rows"}
    assert certificate["against"] == "the source file, its graph as it is written"
    assert (certificate["seed"], certificate["checked"], certificate["padding_rows"]) == (3, "cpu", "any")
    assert json.loads(json.dumps(certificate)) == certificate
    assert ("batch=0", "an operator may end the process on an empty batch") in [
        (entry["name"], entry["why"]) for entry in certificate["not_run"]
    ]


def test_two_proofs_say_the_same() -> None:
    assert proof(tiny(), tiny(), PADDING) == proof(tiny(), tiny(), PADDING)


def test_source_and_result_are_left_as_they_are() -> None:
    source, result = (ir.from_proto(attention(3)) for _ in range(2))
    before = [ir.to_proto(each).SerializeToString() for each in (source, result)]
    prove(source, result)
    assert [ir.to_proto(each).SerializeToString() for each in (source, result)] == before


SCALED = "scaled (float[batch, seq, 4] src) => (float[batch, seq, 4] output) { output = OPERATOR (src, src) }"


def scaled(operator: str) -> ir.Model:
    return model(SCALED.replace("OPERATOR", operator))


def test_inputs_and_outputs_must_keep_their_names() -> None:
    other = model("other (float[batch, seq, 4] x) => (float[batch, seq, 4] output) { output = Mul (x, x) }")
    with pytest.raises(ProofFailed, match="the result has the inputs x, the source"):
        prove(scaled("Mul"), other)


def test_a_file_that_onnx_runtime_refuses_is_no_matter_for_twins() -> None:
    broken = scaled("Mul")
    next(iter(broken.graph)).domain = "nowhere"
    broken.graph.opset_imports["nowhere"] = 1
    with pytest.raises(ProofFailed, match="ONNX Runtime can't load the result"):
        prove(scaled("Mul"), broken)


BF16 = """
rounded (float[batch, seq, 4] src) => (float[batch, seq, 4] output)
{
    half = Cast <to = 16> (src)
    both = OPERATOR (half, half)
    output = Cast <to = 1> (both)
}
"""


@pytest.mark.parametrize(("operator", "ok"), [("Mul", True), ("Add", False)])
def test_what_the_cpu_lacks_is_run_by_twins(operator: str, ok: bool) -> None:
    if ok:
        found = prove(scaled("Mul"), model(BF16.replace("OPERATOR", operator)), dtype="bfloat16")
        assert found.checked == "twin"
        assert "twins" in found.record.how
        assert set(found.record.limits) == {"float32", "bfloat16"}
    else:
        with pytest.raises(ProofFailed, match="differs from the source"):
            prove(scaled("Mul"), model(BF16.replace("OPERATOR", operator)), dtype="bfloat16")


HALF_INPUTS = """
scaled (float16[batch, seq, 4] src) => (float16[batch, seq, 4] output) { output = Mul (src, src) }
"""


def test_inputs_of_a_converted_result_have_its_type_and_no_rounding_of_their_own() -> None:
    found = prove(scaled("Mul"), model(HALF_INPUTS), dtype="float16")
    assert found.worst is not None
    # One product of two numbers that are the same on both sides is rounded once.
    assert 0 < found.worst < 2e-2


SHIFTED = """
shifted (float[batch, seq, 4] src) => (float[batch, seq, 4] output) <float little = {0.02}>
{
    square = Mul (src, src)
    output = Add (square, little)
}
"""


def test_what_rounding_would_hide_is_seen_before_the_conversion() -> None:
    converted = model(BF16.replace("OPERATOR", "Mul"))
    prove(scaled("Mul"), model(SHIFTED), dtype="bfloat16")
    with pytest.raises(ProofFailed, match=r"before it was converted to bfloat16, at batch=.* differs from the source"):
        prove(scaled("Mul"), converted, dtype="bfloat16", unconverted=model(SHIFTED))
    found = prove(scaled("Mul"), converted, dtype="bfloat16", unconverted=scaled("Mul"))
    assert found.notes == ("before it was converted to bfloat16, it differed by 0.0e+00 at most",)
    assert found.record.limits["bfloat16"]["per_unit"] == 0.3


def test_a_source_that_can_not_be_run_is_told() -> None:
    fails = model(
        """fails (float[batch, seq, 4] src) => (float[batch, seq, 4] output) <int64[3] no = {7, 7, 7}>
        { output = Reshape (src, no) }"""
    )
    with pytest.raises(ProofFailed, match="the source itself can't be run on inputs that were drawn for it"):
        prove(fails, fails)


def test_inputs_that_are_no_numbers_are_told() -> None:
    text = model("text (string[batch] words) => (string[batch] output) { output = Identity (words) }")
    with pytest.raises(ProofFailed, match="the input 'words' is no tensor of numbers"):
        prove(text, text)


@pytest.mark.parametrize("name", ["bart", "bert", "llama", "gpt_oss", "modernbert", "t5"])
def test_models_of_the_zoo_with_and_without_metadata(name: str, zoo: Any) -> None:
    from maskport.export import inspect

    source = ir.load(zoo(name).path)
    masks = dict.fromkeys(site.mask for site in inspect(source, check=False).sites)
    for _ in range(2):
        found = prove(source, source, masks=list(masks), padding_rows="keep")
        assert found.notes == ()
        assert found.worst is not None
        assert sum(case.error is not None for case in found.record.cases) > 20
        source.metadata_props.clear()


COUNTS = """
counts (int64[batch, seq] input_ids) => (int64[batch, seq] output) <int64 n = {N}> { output = Add (input_ids, n) }
"""


def test_whole_numbers_must_be_equal_in_any_precision() -> None:
    prove(model(COUNTS.replace("N", "1")), model(COUNTS.replace("N", "1")))
    with pytest.raises(ProofFailed, match=r"by 1 \(allowed: 0\)"):
        prove(model(COUNTS.replace("N", "1")), model(COUNTS.replace("N", "2")), dtype="float16")
