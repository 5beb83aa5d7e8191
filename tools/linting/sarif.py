"""Findings in SARIF 2.1.0, the format of code scanners (OASIS, https://docs.oasis-open.org/sarif/sarif/v2.1.0)."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from urllib.parse import quote

from .lint import Linted
from .rule import Finding, Rule
from .rules import RULES

__all__ = ["sarif"]

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(linted: Linted, path: str) -> dict[str, Any]:
    """Return a log of one run, with all rules and the findings of a file."""
    places = {code: place for place, code in enumerate(RULES)}
    driver = {
        "name": "maskport lint",
        "version": version("maskport"),
        "rules": [_rule(rule) for rule in RULES.values()],
    }
    problems = [{"level": "warning", "message": {"text": f"{code}: {why}"}} for code, why in linted.not_run.items()]
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "results": [_result(finding, path, places) for finding in linted.findings],
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": problems}],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.do},
        "defaultConfiguration": {"level": rule.level},
    }


def _result(finding: Finding, path: str, places: dict[str, int]) -> dict[str, Any]:
    file, region = path, {}
    if finding.source is not None:
        file, region = finding.source[0], {"region": {"startLine": max(1, finding.source[1])}}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": _uri(file)}, **region}}
    names = {"function": finding.site, "member": finding.node}
    logical = [{"name": name, "kind": kind} for kind, name in names.items() if name]
    if logical:
        location["logicalLocations"] = logical
    return {
        "ruleId": finding.rule.code,
        "ruleIndex": places[finding.rule.code],
        "level": finding.rule.level,
        "message": {"text": finding.message},
        "locations": [location],
        "properties": {"model": path, "fixable": finding.fixable},
    }


def _uri(file: str) -> str:
    """Return a path as a URI: relative where it is, else with its scheme."""
    path = PurePath(file)
    return Path(file).as_uri() if path.is_absolute() else quote(PurePosixPath(path.as_posix()).as_posix())
