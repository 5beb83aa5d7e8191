"""What the processes say to each other: one JSON object per line."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def answers() -> Iterator[Callable[[str], None]]:
    """Keep standard output for the answers: what the libraries print meanwhile goes to standard error."""
    kept = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    with os.fdopen(kept, "w", encoding="utf-8") as stream:

        def answer(line: str) -> None:
            stream.write(line + "\n")
            stream.flush()

        yield answer


def failure(error: BaseException) -> dict[str, str]:
    """Return the answer of a process that failed: the type of the error, and its first line."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return {"error": f"{type(error).__name__}: {line}" if line else type(error).__name__}
