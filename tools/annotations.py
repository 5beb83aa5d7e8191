"""What is wrong, as annotations of a pull request: GitHub's workflow commands."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .verdict import Check, Contract, Verdict

__all__ = ["Annotation", "at", "source_in", "verdict_annotations"]

# GitHub shows ten annotations of a step: of what fails alike, so many are named in one.
NAMED = 3
# Where a project's packages may lie; the lines of an exported file are told from there.
SOURCES = (".", "src")


@dataclass(frozen=True)
class Annotation:
    """One annotation; as text, it is the line that GitHub reads.

    Attributes
    ----------
    level
        ``error``, ``warning`` or ``notice``.
    title, message
        What is wrong, in short and in full.
    file, line
        Where it is shown; the line is 1 or more.
    """

    level: Literal["error", "warning", "notice"]
    title: str
    message: str
    file: str
    line: int | None = None

    def __str__(self) -> str:
        told = {"file": self.file, "title": self.title} | ({} if self.line is None else {"line": str(self.line)})
        properties = ",".join(f"{name}={_property(value)}" for name, value in told.items())
        return f"::{self.level} {properties}::{_data(self.message)}"


def at(source: tuple[str, int] | None, model: str | os.PathLike[str]) -> tuple[str, int | None]:
    """Return where something of a model is shown: at its line of source if there is one, else at the model."""
    if source is None:
        return _inside(Path(model)), None
    file, line = source
    found = (Path(folder, file) for folder in SOURCES)
    return next((_inside(path) for path in found if path.is_file()), file), line


def source_in(model: str | os.PathLike[str] | bytes, name: str) -> tuple[str, int] | None:
    """Return the file and line that a node of a model was exported from, by its name; None if it isn't told."""
    from ..export.load_model import load_model
    from ..export.tracing.traces import source_of

    found = (source_of(node) for node in load_model(model)[0].graph.all_nodes() if node.name == name)
    return next(found, None)


def verdict_annotations(verdict: Verdict, model: str | os.PathLike[str]) -> list[Annotation]:
    """Return what is wrong by a verdict: each contract that failed, and in one what differs from the reference.

    That is shown where candidate and reference first part.
    """
    name = Path(model).name
    contracts = [failed for failed in verdict.failures if isinstance(failed, Contract)]
    found = [
        Annotation("error", one.name, f"{name}: {one.why or 'it is broken'}", *at(one.source, model))
        for one in contracts
        if one.name != "first-difference"
    ]
    cases = [failed for failed in verdict.failures if isinstance(failed, Check)]
    parting = [one for one in contracts if one.name == "first-difference"]
    if cases:
        lines = [f"{name} differs from its reference", *(str(case) for case in cases[:NAMED])]
        lines += [f"and {len(cases) - NAMED} more"] if len(cases) > NAMED else []
        lines += [str(one.why) for one in parting]
        source = next((one.source for one in parting), None)
        found.insert(0, Annotation("error", "parity", "\n".join(lines), *at(source, model)))
    if not found and not verdict.ok:
        found = [Annotation("error", "nothing was shown", _nothing(name, verdict.contracts), *at(None, model))]
    return found


def _nothing(name: str, contracts: Sequence[Contract]) -> str:
    return "\n".join([f"{name} is not known to be right", *(f"{one.name}: {one.why}" for one in contracts if one.why)])


def _inside(path: Path) -> str:
    """Return a path from the repository's folder, or without one from the working directory, if it lies below."""
    path, here = path.absolute(), Path.cwd()
    repository = Path(os.environ.get("GITHUB_WORKSPACE", here))
    base = repository if here.is_relative_to(repository) else here
    return (path.relative_to(base) if path.is_relative_to(base) else path).as_posix()


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
