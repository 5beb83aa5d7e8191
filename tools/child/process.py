"""A Python process that is asked over pipes, and how it ended."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO

# What Linux grants to everybody.
PIPE_BYTES = 1 << 20


class Process:
    """A module that is run with its standard input and output as pipes.

    Parameters
    ----------
    module
        Its full name.
    arguments
        Of its command line.
    environment
        Beside this process's own.
    """

    def __init__(
        self, module: str, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **(environment or {})},
            bufsize=0,
            # An interrupt at the terminal is for the parent, which ends its children.
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        for stream in (process.stdin, process.stdout):
            _widen(stream)
        self._process = process
        self.to: IO[bytes] = process.stdin
        self.of: IO[bytes] = process.stdout

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked again."""
        return self._process.poll() is None

    def answers(self, seconds: float) -> bool:
        """Wait until it says something, or ends; False if it does neither in so many seconds."""
        if os.name == "nt":
            # Windows can't wait for a pipe: there a process that hangs is waited for.
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(self.of, selectors.EVENT_READ)
            return bool(selector.select(seconds))

    def end(self) -> tuple[str, str]:
        """Wait for the end of a process that has closed its output; return how it ended, and what it said last."""
        how = ended(self._process.wait())
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return how, lines[-1] if lines else ""

    def close(self) -> None:
        """End the process."""
        if self.alive:
            self._process.kill()
        self._process.wait()
        for stream in (self.to, self.of):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._errors.close()


def _widen(stream: IO[bytes]) -> None:
    """Let a pipe hold more than its 64 KiB, where that can be chosen: fewer turns from one process to the other."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def ended(code: int) -> str:
    """Return how a process ended: the name of a signal, or its exit code."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"
