"""``maskport bench``: from its arguments to tables, a plot and an exit code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from .benchmark.points import BASE, Point
from .benchmark.result import Result
from .errors import ToolError
from .files import check_output
from .screen import Screen


def bench_command(
    screen: Screen,
    model: str,
    against: Sequence[Path],
    candidates: Sequence[str],
    sweeps: Sequence[str],
    sizes: tuple[int | None, int | None, float | None],
    inputs: Path | None,
    quick: bool,
    budget: float,
    picture: Path | None,
    as_json: bool,
) -> int:
    """Measure a model, or read what was measured before, and show it.

    Returns
    -------
    int
        1 if our own file is wrong or could not be made, else 0.

    Raises
    ------
    MaskportError, ExportError
        If the arguments can't be meant, or the model can't be measured.
    """
    if picture is not None:
        from .benchmark.plot import check_plot

        check_output(picture)
        check_plot(picture)
    if model.endswith(".json"):
        result = _read(Path(model))
    else:
        from .benchmark.bench import bench

        # One line per step, where somebody watches.
        say = screen.err.print if screen.err.is_terminal else None
        point = _point(*sizes)
        result = bench(
            model,
            against=against,
            candidates=candidates,
            sweeps=sweeps,
            point=point,
            inputs=inputs,
            quick=quick,
            budget=budget,
            on_step=say,
        )
    if picture is not None:
        from .benchmark.plot import plot

        plot(result, picture)
    if as_json:
        screen.json(result.to_json())
    else:
        from .benchmark.table import result_tables

        screen.out.print(result_tables(result))
    return int(not result.ok)


def _point(batch: int | None, length: int | None, fill: float | None) -> Point | None:
    if batch is length is fill is None:
        return None
    point = Point(
        BASE.name,
        BASE.batch if batch is None else batch,
        BASE.length if length is None else length,
        BASE.fill if fill is None else fill,
        BASE.count,
    )
    if point.batch < 1 or point.length < 1 or not 0 < point.fill <= 1:
        raise ToolError(f"{point} is no batch; give at least one row and one token, and a fill above 0 and up to 1")
    return point


def _read(path: Path) -> Result:
    try:
        return Result.from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ToolError(f"{path} can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{path} holds no result of maskport bench --json: {error!r}") from error
