"""What can't be exported says why, in ten lines at most."""

from __future__ import annotations

import pytest
from maskport.export import ExportError

from .configs import OPSETS, REFUSED
from .models import Zoo


@pytest.mark.parametrize("opset", OPSETS, ids=["default", "23"])
@pytest.mark.parametrize(("name", "reason"), REFUSED.items(), ids=REFUSED)
def test_an_export_is_refused_in_plain_lines(zoo: Zoo, name: str, reason: str, opset: int | None) -> None:
    with pytest.raises(ExportError, match=reason) as caught:
        zoo(name, opset).path  # noqa: B018
    assert len(str(caught.value).splitlines()) <= 10
