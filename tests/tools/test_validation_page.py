"""The page of ``maskport validate --html``: what it says, that names are safe in it, and how it is laid out."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from maskport.models import Dense
from maskport.tools import cli, validate
from maskport.tools.parity.repro import Failing
from maskport.tools.seen.attention import see_attention
from maskport.tools.seen.cells import EXTRA, Panel, Seen, SeenAttention
from maskport.tools.validation_page import draw
from maskport.tools.validation_page.failure import Largest, largest
from maskport.tools.validation_page.grid import grids, level
from maskport.tools.validation_page.page import Told, page
from maskport.tools.verdict import Check, Contract, Verdict
from typer.testing import CliRunner

from .browser import needs_chromium, shown
from .test_inspect_page import HOSTILE, Elements
from .test_seen_attention import RIGHT, mutant
from .tiny_models import tiny

NOTHING = SeenAttention("", (), ("nothing was looked at",))


def told(**others: Any) -> Told:
    facts: dict[str, Any] = {
        "candidate": "a/new.onnx",
        "reference": "old.onnx",
        "command": "maskport validate a/new.onnx",
    }
    return Told(**(facts | {"seed": 7, "seen": NOTHING} | others))


def check(name: str, value: float = 1e-7, *, metric: str = "max_abs", rows: str = "valid", **others: Any) -> Check:
    limit = 1e-5 if metric == "max_abs" else 0.0
    return Check(f"parity/{name}", value <= limit, metric, value, limit, rows, **others)


def verdict(*cases: Check, contracts: tuple[Contract, ...] = ()) -> Verdict:
    return Verdict(cases, contracts, {"float32": (1e-5, "sums in another order")})


def words(source: str) -> str:
    return " ".join("".join(Elements(source).texts).split())


@pytest.fixture(scope="module")
def failing() -> Failing:
    found: list[Failing] = []
    validate(tiny("dropped"), tiny(), on_failure=found.append)
    return found[0].shrunk()


@pytest.fixture(scope="module")
def wrong(failing: Failing) -> str:
    """Return the page of a fault, with all that a page may have."""
    compared = validate(mutant("mask dropped"), RIGHT).with_contracts(validate(mutant("mask dropped")).contracts)
    seen = see_attention(mutant("mask dropped"), reference=RIGHT)
    return page(compared, told(seen=seen, failing=failing, script=Path("case/repro.py")))


def test_the_verdict_comes_first_and_then_what_it_is_drawn_from(wrong: str) -> None:
    heads = re.findall("<h2>(.*?)</h2>", wrong)
    assert heads == [
        "Cases",
        "Expected and seen attention",
        "Contracts",
        "The smallest case that fails",
        "To do it again",
    ]
    assert words(wrong[wrong.index("<header>") : wrong.index("</header>") + 9]).startswith(
        "maskport validate new.onnx ✗a/new.onnx differs from old.onnx."
    )


@pytest.mark.parametrize(
    ("cases", "contracts", "reference", "said"),
    [
        ((check("batch=1"),), (), "old.onnx", "✓a/new.onnx agrees with old.onnx."),
        ((check("batch=1", 1.0),), (), "old.onnx", "✗a/new.onnx differs from old.onnx."),
        ((), (Contract("causality", "ok", 0.0),), None, "✓a/new.onnx keeps what its masks promise."),
        ((), (Contract("causality", "failed", 1.0, "a"),), None, "✗a/new.onnx breaks what its masks promise."),
        ((), (Contract("causality", "not run", None, "a"),), None, "–Nothing was shown: a/new.onnx is not known to be"),
    ],
)
def test_each_verdict_is_a_mark_and_a_sentence(
    cases: tuple[Check, ...], contracts: tuple[Contract, ...], reference: str | None, said: str
) -> None:
    found = replace(verdict(*cases, contracts=contracts), reference=reference is not None)
    assert said in words(page(found, told(reference=reference)))


def test_a_cell_is_coloured_by_its_part_of_the_limit() -> None:
    values = (0.0, 1e-9, 5e-8, 5e-7, 5e-6, 5e-5, 5e-3, 5.0, math.inf)
    found = [level(check("batch=1", value)) for value in values]
    assert found == ["l0", "l1", "l2", "l3", "l4", "x1", "x2", "x3", "x3"]
    assert [level(check("batch=1", 1.0, metric=metric)) for metric in ("nan", "shape", "error")] == ["x3"] * 3


def cells(source: str) -> list[str]:
    """Return the text of each cell of the grids, with its class."""
    return [
        f"{kind}|{re.sub('<[^>]*>', ' ', cell)}"
        for kind, cell in re.findall('<td class="([^"]*)".*?>(.*?)</td>', source.partition("<details>")[0])
    ]


def test_rows_kinds_and_failures_are_told_apart_by_more_than_colour() -> None:
    cases = (
        check("batch=1,seq=7,mask=left", 4.8e-7),
        check("batch=1,seq=7,mask=left", 0.0, metric="non_finite", rows="padding", difference=0.5),
        check("batch=1,seq=7,mask=left", 3.0, metric="non_finite", rows="empty"),
        check("batch=2,seq=7,mask=left", 2.0, metric="nan"),
        check("batch=2,seq=7,mask=ones", 1.0, metric="error", why="it fell over"),
        check("batch=2,seq=33,mask=no token", 0.0, metric="non_finite", rows="empty", difference=0.0),
    )
    found = [" ".join(cell.replace("&nbsp;", " ").replace("&thinsp;", " ").split()) for cell in cells(grids(cases))]
    # Sizes down, masks across: ones, left, no token.
    assert found == [
        *("none|", "l3| 5e-7 p e ✗", "none|"),
        *("x3 wrong| ✗ error", "x3 wrong| ✗ NaN", "none|"),
        *("none|", "none|", "none| – e"),
    ]
    assert "padding rows are finite, and differ by 5.00e-01" in grids(cases)
    assert "it fell over" in grids(cases)


def test_each_output_has_a_grid_and_a_run_that_failed_is_in_all() -> None:
    cases = [check(f"batch=1,seq={n},mask=ones/{name}", n * 1e-9) for n in (1, 7) for name in ("hidden", "pooled")]
    source = grids([*cases, check("batch=3,seq=7,mask=ones", 1.0, metric="error", why="it fell over")])
    assert re.findall("<h3>.*?<code>(.*?)</code>", source) == ["hidden", "pooled"]
    assert source.count('<table class="grid">') == 2
    assert source.count("✗&nbsp;error") == 2
    assert "All 5 figures, the 1 that failed first" in source


def test_masks_of_another_kind_have_columns_of_their_own() -> None:
    source = grids([check("batch=1,seq=7,mask=ones,segments=runs"), check("batch=1,seq=7,mask=ones")])
    assert re.findall('<th scope="col">(.*?)</th>', source) == ["batch × seq", "ones", "ones, runs"]


def test_attention_that_must_not_be_is_marked_in_a_panel_of_padding(wrong: str) -> None:
    source = wrong[wrong.index("Expected and seen") : wrong.index("<h2>Contracts")]
    assert "the masks that were read from the reference" in source
    assert re.search("✗ [0-9]+ pairs attended that must not be</span>: the weights of .*layers.0.self_attn", source)
    assert re.search("✓ as expected</span>: the weights of .*layers.1.self_attn", source)
    assert '<text class="pad"' in source
    drawn = [path.count("M") for path in re.findall('<path class="extra" fill-rule="evenodd" d="(.*?)"', source)]
    marks = [path.count("M") for path in re.findall('<path class="extra-mark" fill-rule="evenodd" d="(.*?)"', source)]
    seen = see_attention(mutant("mask dropped"), reference=RIGHT)
    counted = [n for s in seen.seen for panel in s.panels if (n := int((panel.cells == EXTRA).sum()))]
    # The first is the legend's.
    assert drawn == marks == [1, *counted]


def test_contracts_are_listed_the_failed_first_and_what_was_not_run_with_its_reason() -> None:
    contracts = (
        Contract("causality", "ok", 0.0),
        Contract("window", "not run", None, "the model has no window"),
        Contract("padding-invariance", "failed", 0.31, "a token at padding moves it"),
    )
    source = page(verdict(check("batch=1"), contracts=contracts), told())
    rows = re.findall(
        r'<td data-label="contract">.*?<code>(.*?)</code>.*?<td data-label="result"><div>(.*?)</div>', source
    )
    assert [(name, re.sub("<.*?>", "", result)) for name, result in rows] == [
        ("padding-invariance", "✗ failed"),
        ("causality", "✓ ok"),
        ("window", "– not run"),
    ]
    assert "a token at padding moves it" in source
    assert "the model has no window" in source


def test_the_smallest_failure_says_sizes_numbers_and_its_script(wrong: str, failing: Failing) -> None:
    found = largest(failing)
    assert isinstance(found, Largest)
    assert abs(found.candidate - found.reference) == failing_difference(failing)
    source = words(wrong[wrong.index("<h2>The smallest") - 10 :].partition("<h2>To do")[0].rpartition("<section>")[0])
    assert "batch 1, seq 2" in source
    assert f"{found.candidate:.6g} in the candidate, {found.reference:.6g} in the reference" in source
    assert "attention_mask: 1 of 2 tokens are real" in source
    assert "case/repro.py" in source


def failing_difference(failing: Failing) -> float:
    one, two = (run(failing.case.inputs)["output"].astype(np.float64) for run in (failing.candidate, failing.reference))
    return float(np.abs(one - two)[failing.case.inputs["attention_mask"] == 1].max())


def test_a_candidate_that_gives_another_shape_or_fails_is_told() -> None:
    for fault, said in (("cut", "the shape of 'output' is"), ("baked length", "the candidate fails: ")):
        found: list[Failing] = []
        validate(tiny(fault), tiny(), on_failure=found.append)
        assert str(largest(found[0].shrunk())).startswith(said)


def test_limits_seed_versions_and_the_command_are_told() -> None:
    source = words(page(verdict(check("batch=1")), told()))
    assert "limit, float321.0e-05 of the largest value: sums in another order" in source
    assert "seed7" in source
    assert re.search(r"versionspython 3\.\d+", source)
    assert source.endswith("commandmaskport validate a/new.onnx")


def hostile(text: str, failing: Failing) -> str:
    inputs = {"src": failing.case.inputs["src"], text: failing.case.inputs["attention_mask"]}
    layout = replace(
        failing.layout, inputs={"src": failing.layout.inputs["src"], text: failing.layout.inputs["attention_mask"]}
    )

    def run(given: Any) -> dict[str, np.ndarray]:
        return failing.candidate({"src": given["src"], "attention_mask": given[text]})

    def right(given: Any) -> dict[str, np.ndarray]:
        return failing.reference({"src": given["src"], "attention_mask": given[text]})

    named = replace(failing, case=replace(failing.case, inputs=inputs), layout=layout, candidate=run, reference=right)
    panel = Panel(text, np.full((2, 2), EXTRA), np.ones(2, bool), np.ones(2, bool))
    seen = SeenAttention(
        text, (Seen((text,), Dense(text), text, text, (panel,)), Seen((), None, text, text, ())), (text,)
    )
    cases = [
        check(f"batch=1,seq=2,mask=left/{text.replace('/', '-')}", metric="shape", why=text),
        check("batch=1,seq=2,mask=left", 1.0, metric="error", why=text),
    ]
    found = Verdict(tuple(cases), (Contract(text, "failed", 1.0, text),), {text: (1.0, text)})
    return page(
        found,
        told(
            candidate=text.replace("/", "-"), reference=text, command=text, seen=seen, failing=named, script=Path("x")
        ),
    )


@pytest.mark.parametrize("text", [HOSTILE, "x" * 50_000, "[red]b[/red]"], ids=["markup", "long", "rich"])
def test_names_are_text_and_nothing_else(text: str, failing: Failing) -> None:
    plain, source = hostile("name", failing), hostile(text, failing)
    elements = Elements(source)
    shapes = [[(tag, sorted(attributes)) for tag, attributes in Elements(p).found] for p in (plain, source)]
    assert shapes[0] == shapes[1]
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e]", source)
    assert len(source) < 100_000
    if text is HOSTILE:
        assert any("<script>alert(1)</script>" in data for data in elements.texts)
    if text.startswith("["):
        assert "[red]b[/red] differs from [red]b[/red]" in words(source).replace("[-red]", "[/red]")


def test_the_page_needs_no_script_and_no_network(wrong: str) -> None:
    elements = Elements(wrong)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & {tag for tag, _ in elements.found}
    assert not [name for _, attributes in elements.found for name in attributes if name in ("src", "href", "style")]
    assert not re.search(r"https?:|url\(|@import", wrong)


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(400, False), (400, True), (1280, False), (1280, True)])
def test_chromium_shows_it_without_sideways_scrolling(wrong: str, tmp_path: Path, width: int, dark: bool) -> None:
    found = shown(wrong, tmp_path, width, dark=dark)
    assert found.width <= width
    assert found.height > 1000
    assert (found.fetched, found.console) == ([], [])
    assert found.background == ("rgb(20, 23, 27)" if dark else "rgb(251, 251, 250)")


@needs_chromium
def test_chromium_would_tell_what_is_too_wide_what_is_fetched_and_what_fails(tmp_path: Path) -> None:
    """Otherwise the test above could not fail."""
    bad = (
        '<div style="width: 900px">x</div><img src="http://127.0.0.1:9/none.png"><script>console.error("oops")</script>'
    )
    found = shown(bad, tmp_path, 400)
    assert found.width > 400
    assert found.fetched == ["http://127.0.0.1:9/none.png"]
    assert any("oops" in line for line in found.console)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("right.onnx").write_bytes(RIGHT)
    Path("wide.onnx").write_bytes(mutant("window one too wide"))
    return tmp_path


def test_the_command_writes_the_page(folder: Path) -> None:
    arguments = [
        "validate",
        "wide.onnx",
        "--against",
        "right.onnx",
        "--quick",
        "--html",
        "new/page.html",
        "--repro",
        "r",
    ]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 1, done.output
    source = words(Path("new/page.html").read_text(encoding="utf-8"))
    assert "✗wide.onnx differs from right.onnx." in source
    assert "pairs attended that must not be: the weights of layers.0.self_attn." in source
    assert "The smallest case that fails" in source
    assert "scriptr/repro.py" in source
    assert source.endswith("commandmaskport validate wide.onnx --against right.onnx --quick --seed 0")


def test_contracts_alone_have_a_page(folder: Path) -> None:
    done = CliRunner().invoke(cli.app, ["validate", "right.onnx", "--quick", "--html", "page.html"])
    assert done.exit_code == 0, done.output
    source = Path("page.html").read_text(encoding="utf-8")
    assert "✓right.onnx keeps what its masks promise." in words(source)
    assert re.findall("<h2>(.*?)</h2>", source) == ["Expected and seen attention", "Contracts", "To do it again"]


def test_a_file_that_can_not_be_looked_at_has_its_verdict(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> SeenAttention:
        raise ZeroDivisionError("of a library")

    monkeypatch.setattr(draw, "see_attention", fail)
    done = CliRunner().invoke(cli.app, ["validate", "right.onnx", "--quick", "--html", "page.html"])
    assert done.exit_code == 0, done.output
    source = words(Path("page.html").read_text(encoding="utf-8"))
    assert "nothing could be seen: ZeroDivisionError of a library" in source
    assert "✓right.onnx keeps what its masks promise." in source


def test_without_the_option_nothing_is_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "draw_validation", None)
    done = CliRunner().invoke(cli.app, ["validate", "right.onnx", "--against", "right.onnx", "--quick"])
    assert done.exit_code == 0, done.output
    assert [path.suffix for path in folder.iterdir()] == [".onnx"] * 2


def test_a_page_that_can_not_be_written_is_told_before_anything_is_run(folder: Path) -> None:
    done = CliRunner().invoke(cli.app, ["validate", "right.onnx", "--html", "right.onnx/page.html"])
    assert done.exit_code == 2
    assert "can't be written" in done.stderr
