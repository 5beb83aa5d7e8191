"""What all seeds gave, by graph."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from importlib.metadata import version

from .trial import Trial

COLUMNS = ("model", "opset", "seeds", "in full", "cases", "checks", "contracts kept", "alarms", "CPU seconds")
VERSIONS = ("torch", "transformers", "onnxruntime-gpu")


def lines(tried: Sequence[Trial]) -> Iterator[str]:
    """Yield the table, and below it every alarm."""
    yield "With " + ", ".join(f"{package} {version(package)}" for package in VERSIONS) + ":"
    yield ""
    yield _line(COLUMNS)
    yield "|---" * len(COLUMNS) + "|"
    by_graph = itertools.groupby(tried, lambda trial: (trial.model, trial.opset))
    for (model, opset), group in by_graph:
        yield _line((model, opset, *_figures(list(group))))
    yield _line(("all", "", *_figures(tried)))
    for trial in tried:
        for alarm in trial.alarms:
            how = " quickly" if trial.quick else ""
            yield f"- {trial.model}, opset {trial.opset}, weights {trial.weights}, seed {trial.seed}{how}: {alarm}"


def _figures(trials: Sequence[Trial]) -> tuple[object, ...]:
    return (
        len({trial.seed for trial in trials}),
        len({trial.seed for trial in trials if not trial.quick}),
        sum(trial.cases for trial in trials),
        sum(trial.checks for trial in trials),
        sum(trial.kept for trial in trials),
        sum(bool(trial.alarms) for trial in trials),
        f"{sum(trial.seconds for trial in trials):.0f}",
    )


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
