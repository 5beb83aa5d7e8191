"""What every test shares."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from maskport.tools.dryrun.call import Called

    from .zoo.models import Zoo


@pytest.fixture(scope="session")
def root() -> Path:
    """Folder of the repository."""
    return Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests marked ``gpu`` where ONNX Runtime or torch can't use a CUDA device.

    The budgets of the project's own models are skipped where there can be no dry run, as other tests of it are.
    """
    budgets = [item for item in items if item.name == "budget" and item.path.name == "pyproject.toml"]
    if budgets and (why := _no_dry_run()):
        for item in budgets:
            item.add_marker(pytest.mark.skip(reason=why))
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu or _cuda_works():
        return
    config.hook.pytest_deselected(items=gpu)
    items[:] = [item for item in items if item not in gpu]


def _cuda_works() -> bool:
    import torch
    from maskport.runtime.cuda import cuda_problem

    return torch.cuda.is_available() and cuda_problem() is None


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    """Tiny models of transformers, each exported once for all tests and workers: ``zoo("llama", 23).path``."""
    # Here, so that tests without it don't wait for PyTorch.
    from .zoo.models import Zoo

    base = tmp_path_factory.getbasetemp()
    return Zoo((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "zoo")


@pytest.fixture(scope="session")
def null_device() -> Callable[..., Called]:
    """Call a function of a test file where CUDA is a device that runs nothing: ``null_device(function, *arguments)``.

    What needs host code for CUDA is tested by it without a card. Skips where the device can't be had.
    """
    from maskport.tools.dryrun.call import call_on_null_device

    if why := _no_dry_run():
        pytest.skip(why)
    return call_on_null_device


def _no_dry_run() -> str | None:
    """Return why there can be no device that runs nothing, None if there can."""
    from maskport.tools.dryrun.libraries import stand_ins
    from maskport.tools.errors import ToolError

    try:
        stand_ins()
    except ToolError as error:
        return str(error)
    return None
