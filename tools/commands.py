"""How every command runs: quiet libraries, one line for an error, the exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from ..export.errors import CheckFailed, ExportError, ProofFailed
from ..export.tracing.quiet import collected
from ..runtime.errors import MaskportError
from .screen import Screen


def _note(context: typer.Context, value: bool) -> bool:
    context.obj.verbose = value
    return value


Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", callback=_note, is_eager=True, help="Show what the libraries said, and an error's traceback."
    ),
]

# The extra that brings a package.
EXTRAS = {
    "onnxruntime": "cpu",
    "onnx": "graph",
    "onnx_ir": "graph",
    "onnxscript": "graph",
    "torch": "torch",
    "transformers": "hf",
}

# typer keeps the base of its usage errors to itself.
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]


class Command(TyperCommand):
    """A command whose libraries are quiet, and whose function returns the exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the function while the libraries' messages are collected; show them if it found something wrong."""
        screen: Screen = ctx.obj
        with collected() as screen.messages:
            code = super().invoke(ctx)
        if code or screen.verbose:
            screen.show_messages()
        return code


class Commands(TyperGroup):
    """The group of commands: what any of them raises becomes a line on standard error and exit code 2 (or 1)."""

    # It never returns, and has one mode alone.
    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run the command that the arguments name and exit with its code."""
        screen = Screen()
        arguments = list(sys.argv[1:] if args is None else args) or ["--help"]
        try:
            code = super().main(arguments, prog_name, **{**extra, "standalone_mode": False, "obj": screen})
        except USAGE_ERROR as error:
            path = error.ctx.command_path if error.ctx else "maskport"
            screen.complain(path, f"{error.format_message().rstrip('.')}. See '{path} --help'.")
            code = 2
        except typer.Abort:
            code = 130
        except Exception as error:
            code = _tell(screen, error)
        sys.exit(code or 0)


def _tell(screen: Screen, error: Exception) -> int:
    if isinstance(error, ExportError):
        # The lines of a refused export are a report: one per fault.
        for line in f"maskport: {error}".splitlines():
            screen.err.print(line, markup=False, soft_wrap=True)
    elif isinstance(error, MaskportError):
        screen.complain("maskport", str(error))
    elif isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        extra = EXTRAS[error.name]
        screen.complain("maskport", f"this needs {error.name}, which is not installed; pip install 'maskport[{extra}]'")
    else:
        hint = "" if screen.verbose else "; run it with --verbose for the traceback"
        screen.complain("maskport", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}{hint}")
    if screen.verbose:
        screen.show_messages()
        screen.show_traceback(error)
    # A file that is not the module, or not its source, was made and found wrong; anything else could not be run.
    return 1 if isinstance(error, CheckFailed | ProofFailed) else 2
