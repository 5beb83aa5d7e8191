"""Each fault that people run into is made anew, is found, and is told in the words of docs/faults.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from maskport.tools.dryrun.libraries import stand_ins
from maskport.tools.errors import ToolError

from .faults import FAULTS, TITLES, Said
from .page import PAGE, entry, words


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.number}-{fault.says.__name__}" for fault in FAULTS])
def test_the_fault_is_told_as_the_page_says(fault: Said, tmp_path: Path) -> None:
    if fault.dryrun:
        try:
            stand_ins()
        except ToolError as error:
            pytest.skip(str(error))
    text = fault.says(tmp_path)
    assert text
    assert words(entry(fault, text)) in words(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("number", TITLES)
def test_every_fault_is_found_by_something(number: int) -> None:
    assert any(fault.number == number for fault in FAULTS)
    assert f"## {number}. {TITLES[number]}\n" in PAGE.read_text(encoding="utf-8")
