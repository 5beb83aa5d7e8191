"""One graph under one seed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from maskport.export.proof import side
from maskport.runtime import Session
from maskport.tools import validate, validation
from maskport.tools.contracts.run import contracts_of_claims
from maskport.tools.contracts.subject import Subject
from maskport.tools.verdict import OK, Check, Verdict

from .graphs import Graph

PARITY, CONTRACTS = "parity", "contracts"


@dataclass(frozen=True)
class Trial:
    """What a graph gave under a seed.

    Attributes
    ----------
    model, opset, weights, seed, quick
        What was tried.
    cases, checks
        On how many inputs both sides were run, and how many figures were compared.
    kept
        How many contracts were shown to be kept.
    alarms
        What failed, in words.
    seconds
        CPU time, without building the graph.
    """

    model: str
    opset: int
    weights: int
    seed: int
    quick: bool
    cases: int
    checks: int
    kept: int
    alarms: tuple[str, ...]
    seconds: float


def trials(graph: Graph, folder: Path, seeds: Sequence[tuple[int, bool]]) -> list[Trial]:
    """Try a graph under seeds, each in full or quickly."""
    torch.set_num_threads(1)
    module, inputs, path = graph.build(folder)
    # A process for each file, in which a crash is told, costs more than all that is run in it.
    here = mock.patch.object(
        validation, "ChildSession", lambda model, device, timeout: Session(model, device, threads=1)
    )
    with here, mock.patch.object(side, "THREADS", 1):
        return [_trial(graph, module, inputs, path, seed, quick) for seed, quick in seeds]


def _trial(graph: Graph, module: torch.nn.Module, inputs: dict[str, Any], path: Path, seed: int, quick: bool) -> Trial:
    before = time.process_time()
    verdicts: dict[str, Verdict] = {}
    alarms: list[str] = []
    for what, tried in (
        (PARITY, lambda: validate(path, module, inputs, contracts=False, quick=quick, seed=seed)),
        (CONTRACTS, lambda: _contracts(path, seed, quick)),
    ):
        try:
            verdicts[what] = tried()
        except Exception as error:
            # Whatever it is: on an untouched graph it is an alarm.
            alarms.append(f"{what} raised {type(error).__name__}: {error}")
        else:
            alarms += (f"{what}: {told}" for told in _told(verdicts[what]))
    parity, contracts = verdicts.get(PARITY), verdicts.get(CONTRACTS)
    return Trial(
        graph.name,
        graph.opset,
        graph.weights,
        seed,
        quick,
        parity.runs if parity else 0,
        len(parity.cases) if parity else 0,
        sum(contract.status == OK for contract in contracts.contracts) if contracts else 0,
        tuple(alarms),
        round(time.process_time() - before, 3),
    )


def _contracts(path: Path, seed: int, quick: bool) -> Verdict:
    """Return what `contracts_of` does, without a process for each."""
    subject = Subject.of(path, seed)
    return Verdict((), tuple(contracts_of_claims(subject, subject.claims, quick)), {}, reference=False)


def _told(verdict: Verdict) -> Iterator[str]:
    """Yield what is wrong with a verdict: what failed, or that nothing was shown."""
    for failed in verdict.failures:
        yield str(failed) if isinstance(failed, Check) else f"{failed.name}: {failed.why}"
    if not verdict.ok and not verdict.failures:
        yield "nothing was shown"
