"""A mask is read back the same from a graph that was rewritten and means the same."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from maskport.export import inspect
from maskport.export.report import SiteReport
from onnx.reference import ReferenceEvaluator

from ...zoo.configs import OPSETS
from ...zoo.models import Zoo
from .mutations import LIBRARIES, OURS, all_of_ours
from .test_zoo_masks import EXPECTED

# One of each kind: padding, causal, windows with a soft cap, both sides, encoder and decoder, biases, sinks.
MODELS = ("bert", "gpt2", "llama", "gemma2", "modernbert", "bart", "t5", "bloom", "gpt_oss")
# Of each other model, all of our rewrites at once.
OTHERS = tuple(name for name in EXPECTED if name not in MODELS)


@functools.cache
def facts(path: Path) -> list[dict[str, Any]]:
    """Return what the plain export's sites are."""
    return [_facts(site) for site in inspect(path).sites]


def _facts(site: SiteReport) -> dict[str, Any]:
    named = ("q_heads", "kv_heads", "head_size", "softcap", "cross", "mask", "verified")
    plain = {name: getattr(site, name) for name in named}
    return plain | {"scale": round(site.scale, 6), "biased": site.bias is not None, "sink": site.sink is not None}


def check(plain: Path, rewrite: Callable[[onnx.ModelProto, Path], onnx.ModelProto], folder: Path) -> None:
    """Compare the sites of a file with those of its rewritten model."""
    report = inspect(rewrite(onnx.load(plain), folder))
    # In another order of the nodes, an encoder's and a decoder's sites come in another order.
    found = [_facts(site) for site in report.sites]
    missing = []
    for expected in facts(plain):
        if expected in found:
            found.remove(expected)
        else:
            missing.append(expected)
    assert (missing, found) == ([], [])


@pytest.mark.parametrize("rewrite", [*LIBRARIES, *OURS])
@pytest.mark.parametrize("opset", OPSETS, ids=["default", "23"])
@pytest.mark.parametrize("name", MODELS)
def test_a_rewritten_graph(zoo: Zoo, name: str, opset: int | None, rewrite: str, tmp_path: Path) -> None:
    check(zoo(name, opset).plain, {**LIBRARIES, **OURS}[rewrite], tmp_path)


@pytest.mark.parametrize("opset", OPSETS, ids=["default", "23"])
@pytest.mark.parametrize("name", OTHERS)
def test_the_other_models(zoo: Zoo, name: str, opset: int | None, tmp_path: Path) -> None:
    check(zoo(name, opset).plain, all_of_ours, tmp_path)


@pytest.mark.parametrize("rewrite", OURS)
def test_our_rewrites_change_the_graph_and_not_what_it_computes(zoo: Zoo, rewrite: str, tmp_path: Path) -> None:
    model = onnx.load(zoo("bert").plain)
    if rewrite == "folded":
        # The exporter has left nothing to fold.
        model = OURS["unfolded"](model, tmp_path)
    rewritten = OURS[rewrite](model, tmp_path)
    assert rewritten.graph.node != model.graph.node
    shape = (2, 7)
    inputs = {v.name: np.ones(shape, np.int64) for v in model.graph.input}
    inputs["attention_mask"][0, 4:] = 0
    one, other = (ReferenceEvaluator(m).run(None, inputs)[0] for m in (model, rewritten))
    np.testing.assert_allclose(one, other, atol=1e-5)
