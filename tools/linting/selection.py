"""Which rules are wanted: by the beginnings of their codes, from the command or from pyproject.toml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ToolError
from ..project_settings import section
from .rule import Rule
from .rules import RULES

__all__ = ["Selection", "configured"]


@dataclass(frozen=True)
class Selection:
    """Beginnings of codes: of the rules to run, all if there are none, and of those to leave out.

    Raises
    ------
    ToolError
        If no rule begins so.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for prefix in (*self.select, *self.ignore):
            if not prefix or not any(code.startswith(prefix) for code in RULES):
                raise ToolError(f"no rule begins with {prefix!r}; there are {', '.join(RULES)}")

    def rules(self) -> list[Rule]:
        """Return the rules, in the order of their codes."""
        return [
            rule for code, rule in RULES.items() if _longest(code, self.select or ("",)) > _longest(code, self.ignore)
        ]


def _longest(code: str, prefixes: Sequence[str]) -> int:
    return max((len(prefix) for prefix in prefixes if code.startswith(prefix)), default=-1)


def configured(folder: Path, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> Selection:
    """Return what was asked for, and for what wasn't, what ``[tool.maskport.lint]`` of a folder's pyproject.toml says.

    Raises
    ------
    ToolError
        If that can't be read, or says something else.
    """
    said = section(folder, "lint")
    if unknown := sorted(said.keys() - {"select", "ignore"}):
        raise ToolError(f"[tool.maskport.lint] has {unknown[0]!r}; give select or ignore, each a list of codes")
    for name, value in said.items():
        if not isinstance(value, list) or not all(isinstance(code, str) for code in value):
            raise ToolError(f"{name} of [tool.maskport.lint] is {value!r}; give a list of codes, for example ['MP106']")
    return Selection(tuple(select or said.get("select", ())), tuple(ignore or said.get("ignore", ())))
