"""pytest: assertions on ONNX files, and tests of the models that a project's pyproject.toml lists.

In a workflow of GitHub, what fails is also an annotation of the pull request.
Neither PyTorch nor onnx is imported before a test runs.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from .assertions import (
    ANNOTATIONS,
    assert_kernel_budget,
    assert_lint_clean,
    assert_mask_contracts,
    assert_masks_unchanged,
    assert_onnx_parity,
)
from .project_settings import PROJECT

__all__ = [
    "assert_kernel_budget",
    "assert_lint_clean",
    "assert_mask_contracts",
    "assert_masks_unchanged",
    "assert_onnx_parity",
]


def pytest_configure(config: pytest.Config) -> None:
    """Collect the project's models where no arguments say what to run."""
    path = config.rootpath / PROJECT
    # What can't be read is told when it is collected.
    given = config.args_source is pytest.Config.ArgsSource.ARGS
    if not given and path.is_file() and "tool.maskport.models" in path.read_text(encoding="utf-8", errors="replace"):
        config.args.append(str(path))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Make tests of the models in a pyproject.toml."""
    if file_path.name != PROJECT:
        return None
    from .pytest_models import ModelsFile

    return ModelsFile.from_parent(parent, path=file_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep the annotations of what failed: as text, which also comes back from the workers of xdist."""
    report = yield
    if call.excinfo is not None and report.failed:
        found = getattr(call.excinfo.value, ANNOTATIONS, ())
        report.__dict__[ANNOTATIONS] = [str(annotation) for annotation in found]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the annotations of all that failed, each once and on a line of its own."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    for line in dict.fromkeys(line for report in reports for line in getattr(report, ANNOTATIONS, ())):
        terminalreporter.write_line(line)
