"""validate(): a right candidate agrees; each fault is caught, where it is and under its own name."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from maskport.runtime import InputError, MaskportError, Session
from maskport.tools import validate
from maskport.tools.errors import ToolError
from maskport.tools.verdict import Check, Verdict
from maskport.tools.verdict_table import conclusion, findings_table, verdict_table
from rich.console import Console

from .attention_graphs import FAR, attention
from .tiny_models import IO, MEAN, tiny

PATTERNS = {"ones", "right", "left", "holes", "mixed", "one token", "no token"}


def failed(verdict: Verdict, rows: str = "valid") -> set[str]:
    return {case.pattern for case in verdict.cases if not case.ok and case.rows == rows}


def status(verdict: Verdict) -> dict[str, str]:
    return {contract.name: contract.status for contract in verdict.contracts}


@pytest.fixture(scope="module")
def right() -> Verdict:
    return validate(tiny(), tiny())


@pytest.fixture(scope="module")
def dropped() -> Verdict:
    return validate(tiny("dropped"), tiny())


def test_a_right_candidate_agrees_and_every_pattern_ran(right: Verdict) -> None:
    assert right.ok
    assert right.worst == 0.0
    assert right.failures == ()
    assert {case.pattern for case in right.cases} == PATTERNS
    assert {case.rows for case in right.cases} == {"valid", "padding", "empty"}
    assert status(right) == {"interface": "ok", "mask-effect/attention_mask": "ok"}
    assert {case.name for case in right.cases} >= {"parity/batch=1,seq=1,mask=ones", "parity/batch=3,seq=17,mask=left"}


def test_quick_tries_one_size() -> None:
    verdict = validate(tiny(), tiny(), quick=True)
    assert verdict.ok
    assert {case.name.rsplit(",", 1)[0] for case in verdict.cases} == {"parity/batch=3,seq=17"}
    assert {case.pattern for case in verdict.cases} == PATTERNS


def test_a_dropped_mask_fails_wherever_a_token_is_hidden(dropped: Verdict) -> None:
    assert not dropped.ok
    assert failed(dropped) == {"right", "left", "holes", "mixed", "one token"}
    assert dropped.worst is not None
    assert dropped.worst > 0.1
    case = dropped.failures[0]
    assert isinstance(case, Check)
    assert (case.metric, case.rows) == ("max_abs", "valid")
    assert case.value > case.limit > 0


def test_left_padding_taken_for_right_is_caught_there() -> None:
    verdict = validate(tiny("right padding"), tiny())
    assert failed(verdict) == {"left", "holes", "mixed", "one token"}


@pytest.mark.parametrize(
    ("fault", "rows", "patterns"),
    [
        ("nan padding", "padding", {"right", "left", "holes", "mixed", "one token"}),
        ("empty rows", "empty", {"no token"}),
    ],
)
def test_nan_outside_valid_rows_is_a_failure_of_those_rows(fault: str, rows: str, patterns: set[str]) -> None:
    verdict = validate(tiny(fault), tiny())
    assert not verdict.ok
    assert failed(verdict) == set()
    assert failed(verdict, rows) == patterns
    assert {case.metric for case in verdict.failures if isinstance(case, Check)} == {"non_finite"}


def test_other_values_in_padding_rows_are_told_and_right() -> None:
    verdict = validate(tiny("other padding"), tiny())
    assert verdict.ok
    padding = [case for case in verdict.cases if case.rows == "padding"]
    assert padding
    assert max(case.difference or 0.0 for case in padding) > 1
    assert all(case.to_json()["max_abs"] == case.difference for case in padding)


def test_nan_in_both_is_not_equal() -> None:
    verdict = validate(tiny("always nan"), tiny("always nan"))
    assert not verdict.ok
    assert failed(verdict) == PATTERNS
    assert verdict.worst is not None
    assert math.isnan(verdict.worst)


@pytest.mark.parametrize(("candidate", "why"), [("always nan", None), (None, "in the reference alone")])
def test_nan_on_one_side_is_a_failure_that_says_which(candidate: str | None, why: str | None) -> None:
    verdict = validate(tiny(candidate), tiny(None if candidate else "always nan"))
    assert failed(verdict) == PATTERNS
    assert {case.why for case in verdict.cases if case.rows == "valid"} == {why}


def test_an_infinite_difference_is_a_failure_and_plain_json() -> None:
    verdict = validate(tiny("infinite"), tiny())
    assert failed(verdict) == PATTERNS
    text = json.dumps(verdict.to_json(), allow_nan=False)
    assert json.loads(text)["cases"][0]["value"] is None


def test_a_size_that_the_candidate_cannot_take_is_a_failure() -> None:
    verdict = validate(tiny("baked length"), tiny())
    assert not verdict.ok
    assert {case.metric for case in verdict.cases} == {"error"}
    assert "ONNX Runtime" in str(verdict.failures[0])


def test_a_size_that_the_reference_cannot_take_is_not_run_and_nothing_compared_is_not_ok() -> None:
    verdict = validate(tiny(), tiny("baked length"))
    assert verdict.cases == ()
    assert verdict.worst is None
    assert not verdict.ok
    assert set(status(verdict).values()) == {"ok", "not run"}
    assert status(verdict)["parity/batch=3,seq=17,mask=left"] == "not run"
    assert "Nothing was compared" in conclusion(verdict, "a", "b")
    console = Console(width=80)
    with console.capture() as capture:
        console.print(findings_table(verdict))
    told = " ".join(capture.get().split())
    assert "not run parity/batch=1,seq=1,mask=ones and 23 more: the reference failed: ONNX Runtime failed on" in told


def test_another_shape_is_a_failure() -> None:
    verdict = validate(tiny("cut"), tiny())
    cut = [case for case in verdict.cases if case.metric == "shape"]
    assert cut
    assert "[1, 1, 4], the reference's is [1, 7, 4]" in "".join(map(str, cut))


def test_a_lost_input_fails_and_nothing_else_is_claimed() -> None:
    model = onnx.parser.parse_model(
        MEAN.replace(", int64[batch, seq] attention_mask)", ")").replace(
            "mask = Cast <to = 1> (attention_mask)",
            "first = ReduceSum <keepdims = 0> (src, two)\n mask = Clip (first, least, least)",
        )
    )
    verdict = validate(model.SerializeToString(), tiny())
    assert not verdict.ok
    assert verdict.cases == ()
    assert status(verdict) == {"interface": "failed", "parity": "not run"}
    assert verdict.contracts[0].why == "the candidate has lost input attention_mask"


def test_a_mask_that_changes_nothing_is_not_run() -> None:
    verdict = validate(tiny("dropped"), tiny("dropped"))
    assert verdict.ok
    assert status(verdict)["mask-effect/attention_mask"] == "not run"


def test_the_tolerance_is_that_of_the_coarser_type() -> None:
    verdict = validate(tiny("half"), tiny())
    assert verdict.ok
    assert list(verdict.tolerances) == ["float16"]
    assert verdict.worst == 0.0  # the reference is rounded to it, too
    assert min(case.limit for case in verdict.cases if case.rows == "valid") >= 1e-3


def test_a_file_without_metadata_is_read_by_its_names() -> None:
    verdict = validate(tiny("dropped", metadata=False), tiny(metadata=False))
    assert failed(verdict) == {"right", "left", "holes", "mixed", "one token"}
    assert validate(Session(tiny(metadata=False), device="cpu"), tiny(metadata=False)).ok


def changed(**changes: object) -> str:
    """Return the metadata with one entry of the input `src` changed."""
    src = {**IO["inputs"]["src"], **changes}  # type: ignore[index]
    return json.dumps({**IO, "inputs": {**IO["inputs"], "src": src}})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("io", "message"),
    [
        ("{", "maskport.io is no JSON"),
        ("[]", "version None"),
        ("7", "version None"),
        ('{"version": 1}', "is damaged: it has no inputs by their names"),
        ('{"version": 99}', "version 99"),
        (json.dumps({**IO, "inputs": {}}), "doesn't fit its inputs and outputs"),
        (json.dumps({**IO, "outputs": {"other": {"axes": []}}}), "doesn't fit its inputs and outputs"),
        (changed(axes=["batch", "seq"]), "doesn't fit its inputs and outputs"),
        (changed(axes=["batch", "seq", ["x"]]), "is damaged at 'src'"),
        (changed(axes=7), "is damaged at 'src'"),
        (json.dumps({**IO, "inputs": ["src"]}), "is damaged: AttributeError"),
    ],
)
def test_broken_metadata_is_an_error(io: str, message: str) -> None:
    model = onnx.load_model_from_string(tiny(metadata=False))
    onnx.helper.set_model_props(model, {"maskport.io": io})
    with pytest.raises(MaskportError, match=message):
        validate(model.SerializeToString(), model.SerializeToString())


def test_examples_of_a_file_must_be_complete() -> None:
    with pytest.raises(InputError, match="missing input attention_mask"):
        validate(tiny(), tiny(), {"src": np.zeros((2, 3, 4), np.float32)})
    with pytest.raises(ToolError, match="must be a dict of arrays by input name"):
        validate(tiny(), tiny(), [np.zeros((2, 3, 4), np.float32)])


def test_file_against_file_needs_no_torch(tmp_path: Path) -> None:
    path = tmp_path / "tiny.onnx"
    path.write_bytes(tiny())
    code = "import sys; sys.modules['torch'] = None\nfrom maskport.tools.cli import main; main()"
    command = [sys.executable, "-c", code, "validate", str(path), "--against", str(path), "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["ok"]


def test_the_same_seed_draws_the_same(dropped: Verdict) -> None:
    assert validate(tiny("dropped"), tiny()) == dropped
    assert validate(tiny("dropped"), tiny(), seed=1) != dropped


def test_json_has_the_keys_of_the_contract(dropped: Verdict) -> None:
    value = dropped.to_json()
    assert list(value) == ["format", "ok", "cases", "contracts", "limits", "versions", "plan"]
    case = next(case for case in value["cases"] if case["name"] == "parity/batch=3,seq=17,mask=left")
    assert list(case) == ["name", "ok", "metric", "value", "limit", "rows", "max_rel", "cosine", "ulp"]
    assert value["contracts"][0] == {"name": "interface", "status": "ok"}


def test_junit_counts_failures_and_what_was_not_run(dropped: Verdict) -> None:
    suite = ElementTree.fromstring(dropped.to_junit())
    assert int(suite.attrib["failures"]) == len(dropped.failures) == len(suite.findall("testcase/failure"))
    assert int(suite.attrib["tests"]) == len(suite.findall("testcase")) == len(dropped.cases) + len(dropped.contracts)
    nothing = ElementTree.fromstring(validate(tiny("dropped"), tiny("dropped")).to_junit())
    assert nothing.attrib["skipped"] == "1"
    assert len(nothing.findall("testcase/skipped")) == 1


def test_the_table_fits_and_shows_the_failure(dropped: Verdict) -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(verdict_table(dropped))
        console.print(findings_table(dropped))
        console.print(conclusion(dropped, "candidate.onnx", "reference.onnx"))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 80
    shown = {line.split("  ")[0]: line.split()[-1] for line in lines[1:8]}
    assert shown == {name: "differs" if name in failed(dropped) else "agrees" for name in PATTERNS}
    assert lines[-1] == "candidate.onnx differs from reference.onnx."
    assert sum(line.startswith("failed") for line in lines) == 6


def test_a_window_that_a_file_has_is_tried_past_its_end() -> None:
    """Both are the same at every length that is tried anyway."""
    windowed, open_ = (attention(window).SerializeToString() for window in (50, FAR))
    verdict = validate(open_, windowed)
    assert {case.sizes["seq"] for case in verdict.failures if isinstance(case, Check)} == {101}


def test_a_window_that_is_too_long_to_try_is_told() -> None:
    windowed = attention(5000).SerializeToString()
    found = {c.name: c for c in validate(windowed, windowed).contracts}["window/5000"]
    assert found.status == "not run"
    assert "a lost window would not be seen" in str(found.why)
