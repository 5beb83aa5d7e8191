"""ONNX Runtime's profile: which node ran when."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

KERNEL_TIME = "_kernel_time"


@dataclass(frozen=True)
class NodeRun:
    """One run of a node.

    Attributes
    ----------
    node, op_type, provider
        Its name, operator, and ``CUDA`` or ``CPU``.
    start, end
        Nanoseconds of CLOCK_REALTIME; whole microseconds in the profile.
    """

    node: str
    op_type: str
    provider: str
    start: int
    end: int


def read_profile(path: Path, start_ns: int) -> list[NodeRun]:
    """Read a profile, in the order in which the nodes started."""
    runs = []
    for event in json.loads(path.read_text(encoding="utf-8", errors="replace")):
        if event.get("cat") == "Node" and event["name"].endswith(KERNEL_TIME):
            args = event["args"]
            begin = start_ns + event["ts"] * 1000
            name = event["name"].removesuffix(KERNEL_TIME)
            provider = args["provider"].removesuffix("ExecutionProvider")
            runs.append(NodeRun(name, args["op_name"], provider, begin, begin + event["dur"] * 1000))
    # Of two that began in one microsecond, the one that lasts longer is around the other.
    return sorted(runs, key=lambda run: (run.start, -run.end))


class Timeline:
    """Finds the nodes that ran at a time."""

    def __init__(self, runs: Iterable[NodeRun]) -> None:
        self._runs = list(runs)
        self._starts = [run.start for run in self._runs]
        # The last end among a run and those before it: where that is past, there is nothing to look for.
        self._ends = [*accumulate((run.end for run in self._runs), max)]

    def around(self, ns: int) -> list[NodeRun]:
        """Return what ran then, the outermost first: a branch's node runs within its If. Nothing between nodes.

        The null device leaves two microseconds around every stamp, so that a node's rounded times still enclose it.
        """
        found = []
        for place in range(bisect_right(self._starts, ns) - 1, -1, -1):
            if self._ends[place] < ns:
                break
            if ns <= self._runs[place].end:
                found.append(self._runs[place])
        return found[::-1]

    def between(self, start: int, end: int) -> list[NodeRun]:
        """Return the nodes that started in a stretch of time."""
        return [run for run in self._runs if start <= run.start < end]
