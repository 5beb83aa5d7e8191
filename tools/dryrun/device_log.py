"""The log of the null device: what each line says, and the part between two marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Line:
    """One line.

    Attributes
    ----------
    ns
        When, by CLOCK_REALTIME.
    kind
        ``kernel``, ``library``, ``copy``, ``memset``, ``alloc``, ``sync``, ``event``, ``host``, ``capture``, ``graph``,
        ``forbidden``, ``estimate``, ``unknown`` or ``mark``.
    name
        Of the kernel or the call; of a copy ``h2d``, ``d2h``, ``d2d`` or ``h2h``.
    more
        As in native/: of a kernel grid, block, bytes of shared memory, stream, and whether it was captured; of a copy
        bytes, call, stream, place among the copies to the host, whether it was answered, and whether it was captured.
    """

    ns: int
    kind: str
    name: str
    more: tuple[str, ...]

    @property
    def captured(self) -> bool:
        """Whether it went into a CUDA graph instead of being done."""
        return bool(self.more) and self.more[-1] == "captured"


def read_log(path: Path) -> list[Line]:
    """Read a log; the last line of a process that was killed may be cut short."""
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        ns, kind, name, *more = text.rstrip("\n").split("\t")
        if text.endswith("\n"):
            lines.append(Line(int(ns), kind, name, tuple(more)))
    return lines


def parts(lines: Sequence[Line]) -> Iterator[tuple[Line, list[Line]]]:
    """Yield each mark with what follows it."""
    marks = [place for place, line in enumerate(lines) if line.kind == "mark"]
    for start, end in zip(marks, [*marks[1:], len(lines)], strict=True):
        yield lines[start], list(lines[start + 1 : end])
