"""How often a file is run, which is what contracts cost: time differs from machine to machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from maskport.export.check.backend import BackendError
from maskport.tools.contracts.run import contracts_of_claims
from maskport.tools.contracts.subject import Arrays, Subject

from .layers import layers


def runs(model: bytes, quick: bool) -> list[bytes]:
    """Return the inputs of every run, in order."""
    subject = Subject.of(model)
    ran: list[bytes] = []

    def counted(inputs: Arrays) -> Arrays:
        ran.append(b"".join(str(array.shape).encode() + array.tobytes() for array in inputs.values()))
        return subject.side.run(inputs)

    counting = replace(subject, side=replace(subject.side, run=counted))
    contracts = list(contracts_of_claims(counting, subject.claims, quick))
    assert all(contract.status != "failed" for contract in contracts)
    return ran


@pytest.mark.parametrize(("windows", "most"), [((), 140), ((3, 3), 140)], ids=["all tokens", "windows"])
def test_a_small_model_is_run_some_times_and_quickly_a_third_of_that(windows: tuple[int, ...], most: int) -> None:
    model = layers(None, *windows).SerializeToString()
    full, quick = runs(model, quick=False), runs(model, quick=True)
    assert len(full) <= most
    assert 3 * len(quick) <= len(full)


def test_only_what_must_be_repeatable_is_run_twice() -> None:
    """The batch without padding: beside being repeated, at one of the sizes that are free."""
    ran = runs(layers().SerializeToString(), quick=False)
    again = {inputs: count for inputs in ran if (count := ran.count(inputs)) > 1}
    assert list(again.values()) == [3]


def test_what_another_model_gave_is_not_taken_for_its_own() -> None:
    subject = Subject.of(layers().SerializeToString())
    usual = subject.usual("ones")
    assert usual is not None

    def fails(inputs: Arrays) -> Arrays:
        raise BackendError("it doesn't run")

    with pytest.raises(BackendError):
        replace(subject, side=replace(subject.side, run=fails)).usual("ones")
    again = subject.usual("ones")
    assert again is not None
    np.testing.assert_array_equal(again[1]["x2"], usual[1]["x2"])
