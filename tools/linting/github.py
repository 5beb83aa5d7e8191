"""Findings as annotations of a pull request, by GitHub's workflow commands."""

from __future__ import annotations

from .lint import Linted
from .rule import Finding

__all__ = ["workflow_commands"]

COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def workflow_commands(linted: Linted, path: str) -> list[str]:
    """Return a line for each finding: at the line that its node was exported from, else at the model."""
    return [_annotation(finding, path) for finding in linted.findings]


def _annotation(finding: Finding, path: str) -> str:
    rule = finding.rule
    properties = {"file": path, "title": f"{rule.code} {rule.name}"}
    if finding.source is not None:
        properties |= {"file": finding.source[0], "line": str(finding.source[1])}
    where = finding.site or finding.node
    message = f"{where}: {finding.message}" if where else finding.message
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{COMMANDS[rule.level]} {told}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
