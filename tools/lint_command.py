"""``maskport lint`` and ``maskport explain``: from a file to findings and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..runtime.model_file import look
from .errors import ToolError
from .screen import Screen

FORMATS = ("text", "json", "github", "sarif")


def lint_command(screen: Screen, model: Path, select: Sequence[str], ignore: Sequence[str], form: str) -> int:
    """Lint a file and show what was found.

    Returns
    -------
    int
        1 if there are errors or warnings; else 0.

    Raises
    ------
    MaskportError
        If the file can't be read, a package is missing, or there is no such rule.
    """
    look(model)
    try:
        from ..export.errors import InspectError
        from .linting.lint import lint
        from .linting.selection import configured
    except ModuleNotFoundError as error:
        raise ToolError(f"reading a graph needs {error.name}; pip install 'maskport[graph]'") from error
    selection = configured(Path.cwd(), _codes(select), _codes(ignore))
    try:
        with screen.progress(f"Lint {model.name}"):
            linted = lint(model, select=selection.select, ignore=selection.ignore)
    except InspectError as error:
        raise ToolError(str(error)) from error
    if form == "text":
        from .linting.text import print_findings

        print_findings(screen, linted)
    elif form == "github":
        from .linting.github import lint_annotations

        screen.lines(lint_annotations(linted, model))
    elif form == "sarif":
        from .linting.sarif import sarif

        screen.json(sarif(linted, model.as_posix()))
    else:
        screen.json(linted.to_json())
    return int(not linted.ok)


def _codes(given: Sequence[str]) -> list[str]:
    """Return codes that were given one by one, or joined by commas."""
    return [code.strip().upper() for text in given for code in text.split(",")]


def known_command(screen: Screen, as_json: bool) -> int:
    """Try each known fault of the installed packages, and show which are still there; the exit code is 0."""
    from .linting.known import KNOWN, installed, tried

    rows = []
    with screen.progress("Try known faults", len(KNOWN)) as advance:
        for name, known in KNOWN.items():
            answer, why = tried(name)
            rows.append((name, known, installed(known), answer, why))
            advance()
    if as_json:
        fields = ("package", "what", "seen", "rule")
        told = [
            {"name": name, **{field: getattr(known, field) for field in fields}, "installed": found}
            | {"there": answer, "why": why}
            for name, known, found, answer, why in rows
        ]
        screen.json({"format": 1, "known": told})
        return 0
    from .tables import plain_table

    table = plain_table("package", "still there", "what")
    words = {True: "[bold red]yes[/]", False: "[green]no[/]", None: "[yellow]not tried[/]"}
    for _, known, found, answer, why in rows:
        rule = f" [dim]{known.rule}[/]" if known.rule else ""
        table.add_row(f"{known.package}\n[dim]{found or 'not installed'}[/]", words[answer], f"{known.what}{rule}")
        if why:
            table.add_row("", "", f"[dim]{why}[/]")
    screen.out.print(table)
    return 0


def explain_command(screen: Screen, code: str, as_json: bool) -> int:
    """Show what a rule is about.

    Raises
    ------
    ToolError
        If there is none of that code or name.
    """
    from .linting.rules import RULES

    rule = next((rule for rule in RULES.values() if code.upper() == rule.code or code.lower() == rule.name), None)
    if rule is None:
        raise ToolError(f"there is no rule {code!r}; there are {', '.join(RULES)}")
    if as_json:
        fields = ("code", "name", "level", "what", "why", "do", "fixable")
        screen.json({"format": 1, **{field: getattr(rule, field) for field in fields}})
    else:
        from .linting.text import print_explained

        print_explained(screen, rule)
    return 0
