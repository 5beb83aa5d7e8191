"""What every test shares."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    """Folder of the repository."""
    return Path(__file__).resolve().parents[1]
