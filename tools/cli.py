"""The command line. Exit codes: 0 clean; 1 it ran and found something wrong; 2 it could not run."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from ..export.errors import ExportError
from ..runtime.errors import MaskportError

app = typer.Typer(
    name="maskport",
    help="PyTorch attention to ONNX Runtime without losing what its masks mean.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line: an expected error is a message on standard error and exit code 2."""
    try:
        app()
    except (MaskportError, ExportError) as error:
        typer.echo(f"maskport: {error}", err=True)
        sys.exit(2)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"maskport {version('maskport')}")
        raise typer.Exit


@app.callback()
def common(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, metavar="", help="Show the version and exit."),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


# Each command imports what it needs when it is called: the help must not wait for torch or ONNX Runtime.


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Where the exported files stay.")] = Path("build/demo"),
) -> None:
    """Export a reference encoder and all-MiniLM-L6-v2, and compare both with PyTorch."""
    from .demo import run

    raise typer.Exit(0 if run(folder) else 1)
