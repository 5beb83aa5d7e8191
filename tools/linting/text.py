"""Findings for people: what is alike is told once."""

from __future__ import annotations

from collections import Counter

from rich.markup import escape

from ..screen import Screen
from ..shown import joined, plural, shown
from .lint import Linted
from .rule import LEVELS, Finding, Rule

__all__ = ["print_explained", "print_findings"]

LONGEST = 300
MOST_PLACES = 3
STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def print_findings(screen: Screen, linted: Linted) -> None:
    """Print the findings of a file by rule, and how many there are."""
    rules: dict[str, list[Finding]] = {}
    for finding in linted.findings:
        rules.setdefault(finding.rule.code, []).append(finding)
    for code, findings in rules.items():
        rule = findings[0].rule
        screen.out.print(f"[{STYLES[rule.level]}]{code} {rule.name}[/]  {rule.level}", soft_wrap=True)
        for message, places in joined(shown(finding.message, LONGEST) for finding in findings):
            screen.out.print(f"  {escape(message)}", soft_wrap=True)
            _print_places(screen, [findings[place] for place in places])
    for code, why in linted.not_run.items():
        screen.out.print(f"[yellow]not run[/]  {code}: {escape(why)}", soft_wrap=True)
    if linted.findings or linted.not_run:
        screen.out.print()
    screen.out.print(_conclusion(linted), soft_wrap=True)


def _print_places(screen: Screen, findings: list[Finding]) -> None:
    names = list(dict.fromkeys(shown(where) for f in findings if (where := f.site or f.node) is not None))
    sources = list(dict.fromkeys(f"{f.source[0]}:{f.source[1]}" for f in findings if f.source is not None))
    for places in ([name for name, _ in joined(names)], sources):
        if places:
            more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
            screen.out.print(f"    [dim]{escape(', '.join(places[:MOST_PLACES]))}{more}[/]", soft_wrap=True)


def _conclusion(linted: Linted) -> str:
    counts = Counter(finding.rule.level for finding in linted.findings)
    told = ", ".join(plural(counts[level], level) for level in LEVELS if counts[level]) or "nothing found"
    repairs = dict.fromkeys(finding.fixable for finding in linted.findings if finding.fixable)
    mended = f"\nmended by maskport optimize {' '.join(f'--repair {name}' for name in repairs)}" if repairs else ""
    return f"{escape(shown(linted.model))}: {told}{mended}"


def print_explained(screen: Screen, rule: Rule) -> None:
    """Print what a rule is about."""
    screen.out.print(f"[{STYLES[rule.level]}]{rule.code} {rule.name}[/]  {rule.level}: {LEVELS[rule.level]}\n")
    parts = {"what": rule.what, "why it matters": rule.why, "what to do": rule.do}
    if rule.fixable is not None:
        parts["fixable"] = f"maskport optimize --repair {rule.fixable}"
    for title, text in parts.items():
        screen.out.print(f"[dim]{title}[/]\n{escape(text)}\n")
