"""Contracts in processes of their own: crashes are told beside the rest, and a device is the one that was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from maskport.export.check.backend import session_of
from maskport.runtime import DeviceUnavailable
from maskport.runtime.device import Choice
from maskport.tools import validate
from maskport.tools.child.place import ChildPlace
from maskport.tools.contracts import contracts_of
from maskport.tools.errors import Crashed
from maskport.tools.pytest_plugin import assert_mask_contracts, assert_onnx_parity
from maskport.tools.verdict import FAILED

from ..tiny_models import tiny
from .models import SEGFAULT, crashes_at, model


def test_a_crash_at_one_length_leaves_the_other_cases() -> None:
    verdict = validate(crashes_at(17), against=crashes_at(64))
    crashed = [case for case in verdict.cases if not case.ok]
    assert {case.sizes["seq"] for case in crashed} == {17}
    assert all("ends the process with SIGFPE" in str(case.why) for case in crashed)
    assert any(case.ok for case in verdict.cases)
    assert not verdict.ok


def test_a_reference_that_crashes_is_no_pass() -> None:
    verdict = validate(crashes_at(64), against=crashes_at(17))
    assert not verdict.ok
    assert all("the reference failed" in str(failure.why) for failure in verdict.failures)


def test_contracts_tell_a_crash_though_none_of_them_is_about_it() -> None:
    verdict = contracts_of(crashes_at(33))
    found = {contract.name: contract for contract in verdict.failures}
    assert "ends the process with SIGFPE on x [2, 33, 4]" in str(found["no-crash"].why)
    assert any(contract.status == "ok" for contract in verdict.contracts)


def test_a_model_that_always_crashes_has_one_failure() -> None:
    verdict = contracts_of(model(SEGFAULT))
    assert [(contract.name, contract.status) for contract in verdict.failures] == [("no-crash", FAILED)]


def test_the_assertions_of_the_plugin_fail() -> None:
    with pytest.raises(AssertionError, match="ends the process with SIG"):
        assert_mask_contracts(model(SEGFAULT))
    with pytest.raises(AssertionError, match="ends the process with SIG"):
        assert_onnx_parity(model(SEGFAULT), model(SEGFAULT), quick=True)


def test_contracts_find_the_same_in_a_process_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [json.dumps(contracts_of(tiny(fault)).to_json()) for fault in (None, "dropped")]
    monkeypatch.setattr(ChildPlace, "on", classmethod(lambda cls, device="cpu", timeout=1.0: cls()))
    assert [json.dumps(contracts_of(tiny(fault)).to_json()) for fault in (None, "dropped")] == told


def test_a_large_model_is_loaded_anew_after_a_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("maskport.export.check.backend.MAX_COPIED_BYTES", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    # Of one number: the processor takes several at once without complaint.
    text = "g (int32[1] x, int32[1] z) => (int32[1] y) <int32[1] w = {1}> { v = Div (x, z) y = Mul (v, w) }"
    loaded = ir.from_proto(onnx.load_from_string(model(text)))
    session = session_of(loaded, ort.SessionOptions(), (), ChildPlace.on().start)
    low, one = np.full(1, -(2**31), np.int32), np.ones(1, np.int32)
    with pytest.raises(Crashed, match="SIGFPE"):
        session.run(None, {"x": low, "z": -one})
    np.testing.assert_array_equal(session.run(None, {"x": low, "z": one})[0], low)
    assert list(tmp_path.iterdir())
    del session
    assert not list(tmp_path.iterdir())


def test_a_device_that_is_not_there_is_an_error_and_no_other_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # A provider that ONNX Runtime doesn't start: it takes the CPU in silence.
    choice = Choice("cuda:0", "CUDAExecutionProvider", ["CPUExecutionProvider"], "it was asked for")
    monkeypatch.setattr("maskport.tools.child.place.choose", lambda device: choice)
    with pytest.raises(DeviceUnavailable, match="didn't start CUDAExecutionProvider"):
        contracts_of(tiny(), device="cuda")


def test_twins_stand_in_on_the_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = model("g (float[n, 4] x, int32[b, l] t) => (float[b, l, 4] y) { y = com.microsoft.RestorePadding (x, t) }")
    reasons = []
    for place in (ChildPlace.on(), ChildPlace(twins=False, start=ChildPlace.on().start)):
        monkeypatch.setattr(ChildPlace, "on", classmethod(lambda cls, device, timeout, place=place: place))
        reasons.append(str(contracts_of(packed).contracts[0].why))
    assert "can't load the file" not in reasons[0]
    assert "can't load the file" in reasons[1]


@pytest.mark.gpu
def test_contracts_are_run_on_the_device_that_is_asked_for() -> None:
    assert ChildPlace.on("cuda").name == "cuda:0"
    assert contracts_of(tiny(), device="cuda").ok
    assert not contracts_of(tiny("dropped"), device="cuda").ok
