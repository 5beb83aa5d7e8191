"""Run a command on each of several files: ``python -m maskport.tools.each lint --ignore=MP402 A.onnx B.onnx``.

For pre-commit and for ``xargs``, which give many files to one command. The exit code is the highest of all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .cli import app

__all__ = ["main"]

# What pre-commit was asked to compare with: `pre-commit run --from-ref origin/main --to-ref HEAD`.
FROM = "PRE_COMMIT_FROM_REF"


def main(arguments: Sequence[str]) -> int:
    """Run a command on each file.

    Parameters
    ----------
    arguments
        The command; its options, a value joined to its name by ``=``; and the files. ``diff`` compares each with the
        committed one.
    """
    options = [text for text in arguments if text.startswith("-")]
    command, *files = [text for text in arguments if not text.startswith("-")] or [""]
    if not files:
        print("usage: python -m maskport.tools.each COMMAND [--option[=VALUE]] FILE.onnx ...", file=sys.stderr)
        return 2
    if command == "diff" and not any(option.startswith("--git") for option in options):
        options.append(f"--git={os.environ.get(FROM) or 'HEAD'}")
    return max(_run(command, *options, file) for file in files)


def _run(*arguments: str) -> int:
    try:
        app(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
