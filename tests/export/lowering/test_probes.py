"""Operators are known by loading them; what ONNX Runtime refuses is said in its words."""

from __future__ import annotations

import sys

import onnxruntime
import pytest
from maskport.export.lowering import probes
from maskport.export.lowering.kernels import KERNELS
from maskport.export.lowering.probes import PROBES, refused_by_runtime

from .canonical_models import Case, lowered


@pytest.fixture(autouse=True)
def fresh() -> None:
    probes._refused.cache_clear()


def test_all_that_the_table_names_is_probed() -> None:
    for kernel in KERNELS:
        if kernel.operator != "decomposed":
            assert (kernel.operator, kernel.window, kernel.rest) in PROBES or (
                kernel.operator,
                kernel.window,
                "none",
            ) in PROBES


@pytest.mark.parametrize("key", PROBES)
def test_the_installed_runtime_has_them(key: tuple[str, str, str]) -> None:
    assert refused_by_runtime(*key) is None


def test_what_is_refused_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: bytes, *_: object, **__: object) -> None:
        if b"is_causal" in model:
            raise RuntimeError("no such attribute\nand more")

    with monkeypatch.context() as patch:
        patch.setattr(onnxruntime, "InferenceSession", refuse)
        _, (site,) = lowered(Case("causal"))
    assert "as a dense mask" in site.why
    assert site.refused["ai.onnx.Attention causal"] == ["the installed ONNX Runtime doesn't load it: no such attribute"]
    probes._refused.cache_clear()
    assert "as an attribute" in lowered(Case("causal"))[1][0].why


def test_an_unknown_attribute_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    node = PROBES["ai.onnx.Attention", "causal", "none"]
    monkeypatch.setitem(PROBES, ("x", "y", "z"), (node[0], node[1], ", no_such_attribute = 1", node[3]))
    assert "no_such_attribute" in str(refused_by_runtime("x", "y", "z"))


def test_without_the_runtime_the_table_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert refused_by_runtime("ai.onnx.Attention", "causal", "none") is None
