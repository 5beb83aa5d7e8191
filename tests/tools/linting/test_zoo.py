"""No false alarm: what Maskport exports of the zoo has neither errors nor warnings."""

from __future__ import annotations

import pytest
from maskport.tools import lint

from ...zoo.configs import EXPORTED
from ...zoo.models import Zoo


@pytest.mark.parametrize("opset", [None, 23], ids=["default", "23"])
@pytest.mark.parametrize("name", EXPORTED)
def test_an_export_of_the_zoo_is_clean(zoo: Zoo, name: str, opset: int | None) -> None:
    linted = lint(zoo(name, opset).path)
    assert not linted.not_run
    assert [finding.message for finding in linted.findings if finding.rule.level != "note"] == []
    # Attention was read: a file of which nothing is known would be clean as well.
    assert {finding.rule.code for finding in linted.findings} <= {"MP106", "MP402"}
    assert linted.findings
