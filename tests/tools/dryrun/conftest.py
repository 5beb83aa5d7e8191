"""What the tests of the dry run share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from maskport.tools.dryrun.call import Called


@pytest.fixture(autouse=True)
def device(null_device: Callable[..., Called]) -> None:
    """Skip where the null device can't be had; the reason says what is missing."""
