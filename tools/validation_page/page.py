"""The page of ``maskport validate``: the verdict, and all that it was drawn from; no script, no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from ...export.check.checked import versions
from ..inspect_page import LONGEST_TEXT, code, document, facts, figures_list, table, text
from ..parity.repro import Failing
from ..seen.cells import SeenAttention
from ..seen.picture import attention_section
from ..tables import error_text
from ..verdict import FAILED, NOT_RUN, OK, Contract, Verdict
from ..verdict_table import conclusion
from .failure import failure_section
from .grid import grids
from .style import MORE_STYLE

# Where a contract tells where two sides part.
FIRST = "first-difference"
RESULTS = {
    FAILED: '<span class="bad">✗ failed</span>',
    OK: '<span class="good">✓ ok</span>',
    NOT_RUN: '<span class="warn">– not run</span>',
}


@dataclass(frozen=True)
class Told:
    """What a page says beside the verdict.

    Attributes
    ----------
    candidate, reference
        As they were given; without a reference None.
    command
        The command line that repeats it.
    seed
        Of everything that was drawn.
    seen
        What was seen of the candidate's attention.
    failing
        The smallest case that fails, if one does.
    script
        Where that was written to.
    """

    candidate: str
    reference: str | None
    command: str
    seed: int
    seen: SeenAttention
    failing: Failing | None = None
    script: Path | None = None


def write_page(verdict: Verdict, told: Told, path: Path) -> None:
    """Write the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(verdict, told), encoding="utf-8")


def page(verdict: Verdict, told: Told) -> str:
    """Return the page as HTML."""
    where = next((contract.why for contract in verdict.contracts if contract.name.startswith(FIRST)), None)
    parts = [
        _header(verdict, told),
        grids(verdict.cases),
        attention_section(told.seen),
        _contracts(verdict.contracts),
        failure_section(told.failing, where, told.script) if told.failing is not None else "",
        _again(verdict, told),
    ]
    return document(f"Validation of {text(told.candidate)}", "".join(parts), MORE_STYLE)


def _header(verdict: Verdict, told: Told) -> str:
    said = Text.from_markup(conclusion(verdict, told.candidate, told.reference)).plain
    mark, kind = ("✓", "good") if verdict.ok else ("✗", "bad") if verdict.failures else ("–", "warn")
    limits = [case.limit for case in verdict.cases if case.rows == "valid" and case.metric == "max_abs"]
    counts = {status: sum(contract.status == status for contract in verdict.contracts) for status in RESULTS}
    figures: list[tuple[object, str, str]] = []
    if verdict.reference:
        limit = f", limit {error_text(min(limits))}" if limits else ""
        wrong = any(not case.ok for case in verdict.cases)
        figures += [
            (verdict.runs, "runs of both sides", ""),
            (error_text(verdict.worst), f"largest difference on valid rows{limit}", "bad" if wrong else ""),
        ]
    figures += [
        (counts[OK], "contracts ok", "good" if counts[OK] and not counts[FAILED] else ""),
        (counts[FAILED], "failed", "bad" if counts[FAILED] else ""),
        (counts[NOT_RUN], "not run", ""),
    ]
    return (
        f'<header>\n<p class="over">maskport validate</p>\n<h1><bdi>{text(Path(told.candidate).name)}</bdi></h1>\n'
        f'<p class="verdict"><b class="{kind}">{mark}</b><bdi>{text(said, LONGEST_TEXT)}</bdi></p>\n'
        f"{figures_list(figures)}</header>\n"
    )


def _contracts(contracts: Sequence[Contract]) -> str:
    if not contracts:
        return ""
    order = list(RESULTS)
    rows = [
        [
            ("contract", code(contract.name)),
            ("result", RESULTS[contract.status]),
            ("figure", error_text(contract.value) if contract.value is not None else "–"),
            ("says", text(contract.why, LONGEST_TEXT) if contract.why else "–"),
        ]
        for contract in sorted(contracts, key=lambda contract: order.index(contract.status))
    ]
    return (
        "<section>\n<h2>Contracts</h2>\n<p>What holds for a right model whatever its weights are. <em>Not run</em> is "
        f"not ok: nothing was changed that would have shown it.</p>\n{table('contracts', rows)}</section>\n"
    )


def _again(verdict: Verdict, told: Told) -> str:
    rows = [
        (f"limit, {text(dtype)}", f"{error_text(limit)} of the largest value: {text(why, LONGEST_TEXT)}")
        for dtype, (limit, why) in verdict.tolerances.items()
    ]
    rows += [
        ("seed", str(told.seed)),
        ("versions", text(", ".join(f"{name} {version}" for name, version in versions().items()), LONGEST_TEXT)),
        ("command", code(told.command, LONGEST_TEXT)),
    ]
    return f"<section>\n<h2>To do it again</h2>\n{facts(rows)}</section>\n"
