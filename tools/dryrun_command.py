"""``maskport dryrun``: from a file to a report, a page and an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .dryrun.budget import Budget
from .dryrun.model import declared, read_model
from .dryrun.run import dryrun
from .dryrun.table import conclusion, print_comparison, print_trace
from .errors import ToolError
from .files import check_output
from .inputs import parse_sizes, read_inputs
from .screen import Screen


@dataclass(frozen=True)
class Asked:
    """The options of the command, as they were given."""

    sm: int
    cudnn: str
    inputs: Path | None
    sizes: Sequence[str]
    options: Sequence[str]
    compare: Path | None
    budget: str | None
    page: Path | None
    graph: bool
    seconds: float
    memory: float


def dryrun_command(screen: Screen, model: Path, asked: Asked, as_json: bool) -> int:
    """Run a model on the null device and show what it asked of it.

    Returns
    -------
    int
        1 if it is over its budget; else 0.

    Raises
    ------
    MaskportError
        If an option can't be meant, the model can't be run, or the page can't be written.
    """
    if asked.page is not None:
        check_output(asked.page)
    if asked.inputs is not None and asked.sizes:
        raise ToolError("--inputs and --input were both given; --input is for inputs that are drawn")
    budget = Budget.parse(asked.budget) if asked.budget is not None else None
    options = _options(asked.options)
    traces = []
    for path in [model, *([asked.compare] if asked.compare else [])]:
        with screen.progress(f"Dry run of {path.name}"):
            inputs = _inputs(path, asked, strict=path == model)
            traces.append(
                dryrun(
                    path,
                    asked.sm,
                    inputs,
                    cudnn=asked.cudnn,
                    cuda_options=options,
                    graph=asked.graph,
                    seconds=asked.seconds,
                    memory=int(asked.memory * 10**9),
                )
            )
    over = budget.overrun(traces[0]) if budget else []
    if asked.page is not None:
        from .dryrun.page import write_page

        write_page(traces[0], asked.page)
    if as_json:
        report = traces[0].to_json()
        if len(traces) > 1:
            report["compared"] = traces[1].to_json()
        if budget is not None:
            report["over_budget"] = over
        screen.json(report)
        return int(bool(over))
    if len(traces) > 1:
        print_comparison(screen, traces)
    else:
        print_trace(screen, traces[0])
    screen.out.print()
    screen.out.print(conclusion(traces[0], over, budget is not None))
    return int(bool(over))


def _inputs(path: Path, asked: Asked, *, strict: bool) -> dict[str, Any]:
    """Return what is given for a model; of what is compared with it, only inputs that it has."""
    model = declared(read_model(path))
    given: dict[str, Any] = dict(parse_sizes(asked.sizes))
    if asked.inputs is not None:
        given = read_inputs(asked.inputs, model)
    return given if strict else {name: value for name, value in given.items() if name in model.input_names}


def _options(texts: Sequence[str]) -> dict[str, str]:
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ToolError(f"--option {text!r} is not of the form NAME=VALUE, for example sdpa_kernel=2")
        options[name] = value
    return options
