"""SARIF 2.1.0: what its schema requires, and what scanners show."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
from maskport.tools import cli, lint
from maskport.tools.linting.rules import RULES
from maskport.tools.linting.sarif import sarif
from typer.testing import CliRunner

from .faulty import CASES, traced

LEVELS = {"none", "note", "warning", "error"}


def test_the_log_has_what_the_schema_requires() -> None:
    for code, cases in CASES.items():
        for make in cases.faulty.values():
            log = sarif(lint(make()), "models/a model.onnx")
            assert json.loads(json.dumps(log)) == log
            assert (log["version"], log.keys()) == ("2.1.0", {"$schema", "version", "runs"})
            (run,) = log["runs"]
            rules = run["tool"]["driver"]["rules"]
            assert [rule["id"] for rule in rules] == list(RULES)
            assert code in {result["ruleId"] for result in run["results"]}
            for result in run["results"]:
                assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
                assert result["level"] in LEVELS
                assert result["message"]["text"]
                (location,) = result["locations"]
                assert " " not in location["physicalLocation"]["artifactLocation"]["uri"]
                assert all(place["name"] for place in location.get("logicalLocations", [{"name": "-"}]))


def test_a_finding_stands_at_the_exporting_line() -> None:
    (result,) = sarif(lint(traced('File "project/my model.py", line 12, in forward')()), "m.onnx")["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "project/my%20model.py"},
        "region": {"startLine": 12},
    }


def test_the_command_prints_it_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(CASES["MP302"].faulty["chosen"](), path)
    done = CliRunner().invoke(cli.app, ["lint", str(path), "--format", "sarif"])
    assert (done.exit_code, done.stderr) == (1, "")
    (result,) = json.loads(done.stdout)["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == path.as_uri()
