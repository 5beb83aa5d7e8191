"""Findings as annotations of a pull request."""

from __future__ import annotations

import os
from typing import Final, Literal

from ..annotations import Annotation, at
from .lint import Linted
from .rule import Level

__all__ = ["lint_annotations"]

LEVELS: Final[dict[Level, Literal["error", "warning", "notice"]]] = {
    "error": "error",
    "warning": "warning",
    "note": "notice",
}


def lint_annotations(linted: Linted, model: str | os.PathLike[str]) -> list[Annotation]:
    """Return one for each finding: at the line that its node was exported from, else at the model."""
    found = []
    for finding in linted.findings:
        rule, where = finding.rule, finding.site or finding.node
        message = f"{where}: {finding.message}" if where else finding.message
        title = f"{rule.code} {rule.name}"
        found.append(Annotation(LEVELS[rule.level], title, message, *at(finding.source, model)))
    return found
