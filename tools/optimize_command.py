"""``maskport optimize``: from its arguments to a faster file, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..runtime.model_file import look
from .errors import ToolError
from .files import check_output
from .screen import Screen


def optimize_command(
    screen: Screen,
    model: Path,
    output: Path,
    target: str,
    dtype: str | None,
    padding_rows: str,
    assume: Sequence[str],
    repair: Sequence[str],
    packing: str,
    sizes: tuple[Sequence[str], float | None] | None,
    check: bool,
    as_json: bool,
    html: Path | None,
) -> int:
    """Optimize a model, write it, and show what was done.

    Parameters
    ----------
    sizes : (sequence of str, float or None), optional
        Shapes and fill to measure for; None measures nothing.

    Raises
    ------
    MaskportError, ExportError
        If the file can't be read or written, what is asked for doesn't exist, or the result is not the source.
    """
    look(model)
    for path in (output, html):
        if path is not None:
            check_output(path)
    try:
        from ..export import InspectError, Workload, optimize
    except ModuleNotFoundError as error:
        raise ToolError(f"reading a graph needs {error.name}; pip install 'maskport[graph]'") from error
    try:
        with screen.progress(f"Optimize {model.name}"):
            optimized = optimize(
                model,
                output,
                target=target,
                dtype=dtype,
                padding_rows=padding_rows,
                assume=assume,
                repair=repair,
                packing=packing,
                autotune=None if sizes is None else Workload.parse(*sizes),
                check=check,
            )
    except InspectError as error:
        raise ToolError(str(error)) from error
    if html is not None:
        from .optimize_page import write_optimize_page
        from .reading import read_attention

        with screen.progress(f"Inspect {model.name}"):
            write_optimize_page(optimized, read_attention(model, check=check), html)
    if as_json:
        screen.json(optimized.to_json())
    else:
        from .optimize_table import print_optimized

        print_optimized(screen, optimized, model)
    return 0
