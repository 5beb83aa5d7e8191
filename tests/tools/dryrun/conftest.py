"""What the tests of the dry run share."""

from __future__ import annotations

import pytest
from maskport.tools.dryrun.libraries import stand_ins
from maskport.tools.errors import ToolError


@pytest.fixture(autouse=True, scope="session")
def libraries() -> None:
    """Skip where the stand-in libraries can't be had; the reason says what is missing."""
    try:
        stand_ins()
    except ToolError as error:
        pytest.skip(str(error))
