"""What a rule of the linter is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import onnx_ir as ir

    from .subject import Subject

__all__ = ["LEVELS", "Finding", "Found", "Level", "Rule"]

Level = Literal["error", "warning", "note"]
# What each says of a file; notes don't change the exit code.
LEVELS: dict[Level, str] = {
    "error": "the file does something else than it should, or does not run",
    "warning": "it is right on some inputs only, or can't be told to be right",
    "note": "it is right, and could be better",
}


@dataclass(frozen=True)
class Found:
    """What a rule found: a message, the node and attention that it is about, and whether the rule's repair mends it."""

    message: str
    node: ir.Node | None = None
    site: str | None = None
    mends: bool = True


@dataclass(frozen=True)
class Rule:
    """One kind of fault.

    Attributes
    ----------
    code, name
        Both are stable: ``MP101`` and ``multiplied-mask``.
    level
        One of :data:`LEVELS`.
    what, why, do
        What is found, why it matters, and what to do about it.
    find
        Looks for it in a file.
    fixable
        Name of the repair of `maskport optimize --repair` that mends it.
    """

    code: str
    name: str
    level: Level
    what: str
    why: str
    do: str
    find: Callable[[Subject], Iterable[Found]] = field(repr=False)
    fixable: str | None = None


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes
    ----------
    rule
        What kind of fault it is.
    message
        What is wrong here.
    node, site
        Names of the node and of the attention, where there are such.
    source
        File and line that the node was exported from, where the file says so.
    fixable
        Name of the repair that mends it.
    """

    rule: Rule
    message: str
    node: str | None = None
    site: str | None = None
    source: tuple[str, int] | None = None
    fixable: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it with JSON's types."""
        source = None if self.source is None else {"file": self.source[0], "line": self.source[1]}
        about = {"code": self.rule.code, "name": self.rule.name, "level": self.rule.level, "message": self.message}
        return about | {"node": self.node, "site": self.site, "source": source, "fixable": self.fixable}
