"""Known faults of other packages: each probe sees its fault in a version that has it."""

from __future__ import annotations

import json

import pytest
from maskport.tools import cli
from maskport.tools.linting import known, known_probes
from maskport.tools.linting.known import KNOWN, Known, installed, tried
from maskport.tools.linting.rules import RULES
from typer.testing import CliRunner


def test_every_fault_has_a_probe_and_a_rule_that_is_there() -> None:
    assert all(callable(getattr(known_probes, name)) for name in KNOWN)
    assert {one.rule for one in KNOWN.values()} - {None} <= RULES.keys()


@pytest.mark.parametrize("name", KNOWN)
def test_the_probe_sees_the_fault_where_it_is_known(name: str) -> None:
    found, why = tried(name)
    if found is None:
        pytest.skip(str(why))
    version = str(installed(KNOWN[name])).partition("+")[0]
    # Another version may have it or not: the probe answers.
    assert found is True if version == KNOWN[name].seen else found in (True, False)


def test_what_is_not_installed_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe() -> bool:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(known_probes, "half_fill", probe)
    assert tried("half_fill") == (None, "it needs torch, which is not installed")
    assert installed(Known("no-such-package", "", "")) is None


def test_a_probe_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe() -> bool:
        raise RuntimeError("no graph\nat all")

    monkeypatch.setattr(known_probes, "mean_row", probe)
    assert tried("mean_row") == (None, "the probe failed: no graph")


def test_the_command_shows_each(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {name: one for name, one in KNOWN.items() if one.package == "onnxruntime"}
    monkeypatch.setattr(known, "KNOWN", quick)
    told = json.loads(CliRunner().invoke(cli.app, ["lint", "--known", "--json"]).stdout)
    assert [one["name"] for one in told["known"]] == list(quick)
    assert all(one["there"] in (True, False) for one in told["known"])
    done = CliRunner().invoke(cli.app, ["lint", "--known"])
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
