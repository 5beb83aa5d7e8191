"""What every test shares."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    """Folder of the repository."""
    return Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests marked ``gpu`` where ONNX Runtime or torch can't use a CUDA device."""
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu or _cuda_works():
        return
    config.hook.pytest_deselected(items=gpu)
    items[:] = [item for item in items if item not in gpu]


def _cuda_works() -> bool:
    import torch
    from maskport.runtime.cuda import cuda_problem

    return torch.cuda.is_available() and cuda_problem() is None
