"""The parent's side of a candidate's process."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .protocol import failure

Answer = dict[str, Any]
# Nothing that is worth comparing takes longer for one request.
PATIENCE = 900.0
SIGNALS = {-4: "SIGILL", -6: "SIGABRT", -8: "SIGFPE", -9: "SIGKILL", -11: "SIGSEGV"}


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
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        package = __name__.rpartition(".")[0]
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{package}.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **(environment or {})},
        )

    def ask(self, request: Mapping[str, Any] | None = None, patience: float = PATIENCE) -> Answer:
        """Send a request, if there is one, and wait for the answer."""
        if request is not None:
            try:
                self._stream("stdin").write(json.dumps(request).encode() + b"\n")
                self._stream("stdin").flush()
            except BrokenPipeError:
                return {"error": self._end()}
        with selectors.DefaultSelector() as selector:
            selector.register(self._stream("stdout"), selectors.EVENT_READ)
            if not selector.select(patience):
                self.close()
                return failure(TimeoutError(f"no answer in {patience:.0f} s"))
        line = self._stream("stdout").readline()
        return json.loads(line) if line else {"error": self._end()}

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()
        self._errors.close()

    def _stream(self, name: str) -> Any:
        return getattr(self._process, name)

    def _end(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"the process ended with {SIGNALS.get(code, code)}" + (f": {lines[-1]}" if lines else "")


def make(name: str, source: Path, target: Path) -> Answer:
    """Make a candidate's file in a process of its own."""
    child = Child("prepare", (name, str(source), str(target)))
    try:
        return child.ask()
    finally:
        child.close()
