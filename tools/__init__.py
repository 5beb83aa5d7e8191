"""What a person or a CI job runs: the command line, the validation of a file, the demonstration.

cli, commands, screen          the commands, how each runs, what it shows
spec, builtin                  SPEC: how a module is named, and the built-in ones
validation, verdict            a candidate against a reference, and what was found
parity/                        which cases, what is compared, and within which limits
contracts/                     what a file promises without a reference
localising/                    where a candidate leaves its reference
mutants/                       faults that are planted, and what catches them
replaying/                     what a file's certificate says was done, done again
seen/, validation_page/        attention as it is seen in a file, and the page of a validation
child/                         ONNX Runtime in a process of its own
annotations, each, committed   what CI runs and shows: lines of source, many files, files as they were committed
inspect, reading               the attention of a file: table, page and JSON
mask_diff, diff                what the attention of two files differs in
picture, mask_sample           pictures of masks and of differences, and the sizes and tensors they are drawn at
inputs, files                  what a command reads, draws and writes
run, export_report, tables     results as tables that fit 80 columns
lint_command, linting/         known faults of masks in a file, and what each means
assertions, pytest_plugin, pytest_models
                               assertions on files, and tests of the models that a project lists
project_settings               what a project's pyproject.toml says
benchmark/                     a model beside what others make of it
dryrun/                        the CUDA kernels that a model launches, without a GPU
demo                           two models exported, validated and put to work
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .benchmark.bench import bench
    from .contracts import contracts_of
    from .dryrun import Trace, dryrun
    from .linting.lint import Linted, lint
    from .mask_diff import Diff, diff
    from .replaying.replay import Replay, replay
    from .validation import validate
    from .verdict import Verdict

__all__ = [
    "Diff",
    "Linted",
    "Replay",
    "Trace",
    "Verdict",
    "bench",
    "contracts_of",
    "diff",
    "dryrun",
    "lint",
    "replay",
    "validate",
]

_FILES = {
    "Diff": "mask_diff",
    "diff": "mask_diff",
    "bench": "benchmark.bench",
    "contracts_of": "contracts",
    "Trace": "dryrun",
    "dryrun": "dryrun",
    "Linted": "linting.lint",
    "lint": "linting.lint",
    "Replay": "replaying.replay",
    "replay": "replaying.replay",
    "Verdict": "verdict",
    "validate": "validation",
}


def __getattr__(name: str) -> object:
    # Lazy, so that the help of the command line doesn't wait for numpy and ONNX Runtime.
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_FILES[name]}", __name__), name)
