"""What a command shows: results on standard output, progress and complaints on standard error, nothing else."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

# Advances by one; given a number, says how many there are.
Advance = Callable[..., None]
COULD_NOT_RUN = 2


class _Console(Console):
    """A console that ends the command where nobody reads its output any more."""

    def on_broken_pipe(self) -> None:
        # Rich would do it to `sys.stdout`, which collects the libraries' prints while a command runs.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())
        raise SystemExit(COULD_NOT_RUN)


class Screen:
    """The two streams as they were when the command began: while it runs, the libraries' prints are collected.

    Attributes
    ----------
    out
        Console of the results, on standard output.
    err
        Console of everything else, on standard error.
    messages
        What the libraries warned, logged and printed.
    verbose
        Whether to show these messages, and tracebacks.
    """

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A picture on a terminal that has no such character is no reason to fail.
                stream.reconfigure(errors="replace")
        self.out = _Console(file=sys.stdout, highlight=False)
        self.err = _Console(file=sys.stderr, highlight=False)
        self.messages: list[str] = []
        self.verbose = False

    def json(self, value: Any) -> None:
        """Print one JSON object on standard output."""
        self.out.file.write(json.dumps(value, indent=1, allow_nan=False) + "\n")

    def lines(self, values: Iterable[object]) -> None:
        """Print each on a line of its own on standard output, as it is."""
        for value in values:
            self.out.print(str(value), markup=False, soft_wrap=True)

    def complain(self, where: str, what: str) -> None:
        """Print one line on standard error."""
        self.err.print(Text(f"{where}: {' '.join(what.split())}"), soft_wrap=True)

    def show_messages(self) -> None:
        """Print what the libraries said, each message once, on standard error."""
        for message in dict.fromkeys(self.messages):
            self.err.print(Text(message, style="dim"), soft_wrap=True)

    def show_traceback(self, error: BaseException) -> None:
        """Print the traceback of an error on standard error."""
        traceback.print_exception(error, file=self.err.file)

    @contextlib.contextmanager
    def progress(self, what: str, total: int | None = None) -> Iterator[Advance]:
        """Show a line on a terminal's standard error while the block runs; yields what advances it by one."""
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
        with Progress(
            *columns,
            console=self.err,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            disable=not self.err.is_terminal,
        ) as progress:
            task = progress.add_task(what, total=total)

            def advance(total: int | None = None) -> None:
                if total is None:
                    progress.advance(task)
                else:
                    progress.update(task, total=total)

            yield advance
