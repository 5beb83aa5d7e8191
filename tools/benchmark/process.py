"""The parent's side of a candidate's process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..child.process import Process
from .protocol import failure

Answer = dict[str, Any]
# Nothing that is worth comparing takes longer for one request.
PATIENCE = 900.0


class Child:
    """A Python process that answers lines with lines; an answer with ``error`` is the last.

    Parameters
    ----------
    module
        Of this package, that is run.
    arguments
        Of its command line.
    environment
        Beside this process's own.
    """

    def __init__(
        self, module: str, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self._process = Process(f"{__name__.rpartition('.')[0]}.{module}", arguments, environment)

    def ask(self, request: Mapping[str, Any] | None = None, patience: float = PATIENCE) -> Answer:
        """Send a request, if there is one, and wait for the answer."""
        if request is not None:
            try:
                self._process.to.write(json.dumps(request).encode() + b"\n")
            except BrokenPipeError:
                return {"error": self._end()}
        if not self._process.answers(patience):
            self.close()
            return failure(TimeoutError(f"no answer in {patience:.0f} s"))
        line = self._process.of.readline()
        return json.loads(line) if line else {"error": self._end()}

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return self._process.alive

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _end(self) -> str:
        how, last = self._process.end()
        return f"the process ended with {how}" + (f": {last}" if last else "")


def make(name: str, source: Path, target: Path) -> Answer:
    """Make a candidate's file in a process of its own."""
    child = Child("prepare", (name, str(source), str(target)))
    try:
        return child.ask()
    finally:
        child.close()
