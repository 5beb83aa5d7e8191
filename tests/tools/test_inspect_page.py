"""The page of ``maskport inspect --html``: self-contained, well-formed, and safe whatever the names are."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from maskport.export.inspector import inspect
from maskport.export.report import Report, SiteReport, UnliftedReport
from maskport.models import Causal, Dense, KeyPadding, Mask, Segments
from maskport.tools.inspect_page import MOST_NODES, page, write_page

from .attention_graphs import FAR, attention

HOSTILE = "<script>alert(1)</script></style><img src=x onerror=alert(1)>\"'&\u202eאבג😀\x00\ud800"
VOID = {"meta", "br", "hr", "path"}


class Elements(HTMLParser):
    """Collects the elements and the text, and checks that each is closed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.found)


def site(name: str, mask: Mask, **others: Any) -> SiteReport:
    facts: dict[str, Any] = {
        "node": "softmax",
        "form": "decomposed",
        "q_heads": 8,
        "kv_heads": 2,
        "head_size": 16,
        "scale": 0.25,
        "softcap": 0.0,
        "sink": None,
        "cross": False,
        "bias": None,
        "empty_rows": "mean",
        "assumes": (),
        "verified": True,
    }
    return SiteReport(name=name, mask=mask, **(facts | others))


def hostile(text: str) -> Report:
    sites = (
        site(text, Dense(text) & KeyPadding("m"), bias=text, sink=text, mask_nodes=((text, text),), form=text),
        site(f"{text}2", Causal(), assumes=((text, "binary"),), verified=False, note=text),
    )
    return Report(text, sites, (UnliftedReport(text, text), UnliftedReport(text, text, attention=False)))


def test_each_distinct_mask_is_a_section_with_its_sites_and_nodes() -> None:
    report = inspect(attention(3, FAR, 3, 3))
    source = page(report)
    elements = Elements(source)
    assert elements.count("section") == 2
    assert "window(3, 0) & padding(attention_mask)" in source.replace("&amp;", "&")
    assert source.count("layers.0,2-3.self_attn</code></bdi> <span>×&nbsp;3</span>") == 1
    assert "<summary>Read from 39 nodes</summary>" in source
    assert all(f"<code>{name}</code>" in source for name, _ in report.sites[1].mask_nodes)
    # Two panels for each mask, and the two squares of the legend.
    assert elements.count("svg") == 6
    attends = [attributes["d"] or "" for tag, attributes in elements.found if attributes.get("class") == "attends"]
    assert [path.count("M") for path in attends[:2]] == [23, 18]


def test_figures_count_what_was_found() -> None:
    texts = " ".join("".join(Elements(page(hostile("a"))).texts).split())
    for figure in ("attentions2", "distinct masks2", "run against the graph1", "not understood1"):
        assert figure in texts
    texts = "".join(Elements(page(Report("m.onnx", (), ()))).texts)
    assert "attentions0" in texts


@pytest.mark.parametrize("text", [HOSTILE, "x" * 100_000, "&" * 10_000], ids=["markup", "long", "ampersands"])
def test_names_are_text_and_nothing_else(text: str, tmp_path: Path) -> None:
    plain, source = page(hostile("name")), page(hostile(text))
    elements = Elements(source)
    shapes = [[(tag, sorted(attributes)) for tag, attributes in Elements(p).found] for p in (plain, source)]
    assert shapes[0] == shapes[1]
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e]", source)
    assert len(source) < 100_000
    write_page(hostile(text), tmp_path / "new" / "page.html")
    assert (tmp_path / "new" / "page.html").read_text(encoding="utf-8") == source
    if text is HOSTILE:
        assert any("<script>alert(1)</script>" in data for data in elements.texts)


def test_the_page_needs_no_script_and_no_network() -> None:
    source = page(hostile(HOSTILE))
    elements = Elements(source)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & {tag for tag, _ in elements.found}
    assert not [name for _, attributes in elements.found for name in attributes if name in ("src", "href", "style")]
    assert not re.search(r"https?:|url\(|@import", source)
    assert "prefers-color-scheme: dark" in source
    assert "max-width: 640px" in source


def test_what_was_assumed_and_what_was_not_run_is_told() -> None:
    report = Report(
        "m.onnx",
        (site("a", Segments("s") | Causal(), assumes=(("s", "binary"),), verified=False, note="not run: no kernel"),),
        (UnliftedReport("softmax_9", "its scores are a sum"),),
    )
    source = page(report)
    assert "<dt>assumed</dt><dd><bdi><code>s</code></bdi> is binary</dd>" in source
    assert '<div class="warn">not run: no kernel</div>' in source
    assert "the expression says more than these facts" in source
    assert "its scores are a sum" in source
    assert "no node computes it" in source


def test_many_nodes_are_counted_and_not_listed() -> None:
    nodes = tuple((f"node_{number}", "And") for number in range(1000))
    source = page(Report("m.onnx", (site("a", Causal(), mask_nodes=nodes),), ()))
    assert source.count("<li><bdi>") == MOST_NODES
    assert f"and {1000 - MOST_NODES} more" in source
