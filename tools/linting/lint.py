"""A file, and what is known to be wrong in it."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ...export.tracing.traces import source_of
from ..errors import ToolError
from .rule import Finding, Found, Rule
from .selection import Selection
from .subject import Subject

__all__ = ["Linted", "lint"]

FORMAT = 1


@dataclass(frozen=True)
class Linted:
    """What was found in a file.

    Attributes
    ----------
    model
        The file's name.
    findings
        By code, and in the graph's order.
    not_run
        Rules that could not be run, and why.
    """

    model: str
    findings: tuple[Finding, ...]
    not_run: dict[str, str]

    @property
    def ok(self) -> bool:
        """Whether nothing was found but notes."""
        return all(finding.rule.level == "note" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return it as `maskport lint --format json` prints it."""
        return {
            "format": FORMAT,
            "model": self.model,
            "ok": self.ok,
            "findings": [finding.to_json() for finding in self.findings],
            "not_run": self.not_run,
        }


def lint(
    model: str | os.PathLike[str] | bytes | Any, *, select: Collection[str] = (), ignore: Collection[str] = ()
) -> Linted:
    """Look for known faults of masks in a file; nothing is run, and PyTorch isn't needed.

    Parameters
    ----------
    model
        Path or bytes of an ONNX file, an ``onnx.ModelProto`` or an ``onnx_ir.Model``. It is not changed.
    select, ignore
        Codes or their beginnings, such as ``MP1``: the rules to run (all by default), and those to leave out. Of two
        that name a rule the longer one counts.

    Returns
    -------
    Linted
        ``ok`` is true if there are no errors and no warnings.

    Raises
    ------
    InspectError
        If it is no ONNX model.
    ToolError
        If no rule has such a code, a node is malformed, or the file's own metadata is damaged.

    Examples
    --------
    >>> from maskport.tools import lint
    >>> [str(finding.rule.code) for finding in lint("model.onnx").findings]  # doctest: +SKIP
    ['MP101']
    """
    rules = Selection(tuple(select), tuple(ignore)).rules()
    subject = Subject(model)
    places = {node: place for place, node in enumerate(subject.graph.all_nodes())}
    findings: list[Finding] = []
    not_run: dict[str, str] = {}
    for rule in rules:
        try:
            found = list(rule.find(subject))
        except ModuleNotFoundError as error:
            not_run[rule.code] = f"it needs {error.name}, which is not installed"
            continue
        except ToolError:
            raise
        except Exception as error:
            # A graph that no rule was written for is not passed.
            raise ToolError(
                f"{subject.name} can't be linted: {rule.code} fails at it ({type(error).__name__} {error}); see "
                f"whether onnx.checker finds it valid, or leave the rule out with --ignore {rule.code}"
            ) from error
        found.sort(key=lambda one: -1 if one.node is None else places.get(one.node, -1))
        findings += [_finding(rule, one) for one in found]
    return Linted(subject.name, tuple(findings), not_run)


def _finding(rule: Rule, found: Found) -> Finding:
    node = found.node
    name = None if node is None else node.name or str(node.outputs[0].name)
    fixable = rule.fixable if found.mends else None
    return Finding(rule, found.message, name, found.site, None if node is None else source_of(node), fixable)
