"""The page of ``maskport optimize``: that of `inspect` on the source, with what each attention became before it."""

from __future__ import annotations

from pathlib import Path

from ..export.optimized import Optimized
from ..export.report import Report
from .inspect_page import LONGEST_TEXT, code, facts, page, text
from .optimize_table import CHECKED_BY, PADDING_ROWS, assumptions, groups, refusals, timings
from .tables import error_text


def write_optimize_page(optimized: Optimized, source: Report, path: Path) -> None:
    """Write the page; `source` is what was found in the source."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(optimize_page(optimized, source), encoding="utf-8")


def optimize_page(optimized: Optimized, source: Report) -> str:
    """Return the page as HTML."""
    return page(source, command="optimize", sections=_became(optimized) + _summary(optimized))


def _became(optimized: Optimized) -> str:
    lists = []
    for name, site in groups(optimized.sites):
        refused = "".join(
            f"<li>{text(kernels, LONGEST_TEXT)}: {text(reasons, LONGEST_TEXT)}</li>"
            for kernels, reasons in refusals(site)
        )
        more = f"<details><summary>Better kernels that were refused</summary><ul>{refused}</ul></details>"
        rows = [
            ("attention", code(name, LONGEST_TEXT)),
            ("mask", code(site.mask, LONGEST_TEXT)),
            ("was", text(site.source_form)),
            ("became", f"<strong>{text(site.kernel)}</strong>"),
            ("why", text(site.why, LONGEST_TEXT) + (more if refused else "")),
        ]
        lists.append(facts(rows))
    return f"<section>\n<h2>What became of it</h2>\n{'<hr>'.join(lists)}</section>\n" if lists else ""


def _summary(optimized: Optimized) -> str:
    rows = [("target", text(optimized.target + (f", {optimized.dtype}" if optimized.dtype else "")))]
    rows.append(("changed", "yes" if optimized.changed else "no: the file is the source"))
    if optimized.changed:
        rows.append(("passes", text(", ".join(f"{name} {count}" for name, count in optimized.passes if count))))
        rows.append(("padding rows", text(PADDING_ROWS[optimized.padding_rows])))
        rows.append(("checked", text(CHECKED_BY[optimized.checked])))
    rows += [("assumed", text(words, LONGEST_TEXT)) for words in assumptions(optimized.assumes)]
    proof = optimized.proof
    if proof is not None:
        rows.append(("runs", f"{len(proof.record.cases)} of source and result, by {text(proof.record.how)}"))
        rows.append(("difference", f"{error_text(proof.worst)} at most on valid rows"))
        rows += [("not run", f"{text(name)}: {text(why, LONGEST_TEXT)}") for name, why in proof.record.not_run]
    rows += [("measured", text(line, LONGEST_TEXT)) for answer in optimized.measured for line in timings(answer)]
    rows += [
        ("note", text(note, LONGEST_TEXT)) for note in (*optimized.notes, *(proof.notes if proof is not None else ()))
    ]
    return f"<section>\n<h2>The result</h2>\n{facts(rows)}</section>\n"
