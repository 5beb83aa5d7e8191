"""The zoo, as torch.onnx.export leaves it: every attention is found, with exactly its mask, and nothing else is."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
import torch
from maskport.export import inspect
from maskport.models import Mask

from ...zoo.configs import ARCHITECTURES, OPSETS, REFUSED
from ...zoo.models import Zoo

PADDING = "padding(attention_mask)"
CAUSAL = f"causal & {PADDING}"
WINDOW = f"window(7, 0) & {PADDING}"
ROWS_AND_COLUMNS = f"{PADDING} & query_padding(attention_mask)"
DECODER = "causal & padding(decoder_attention_mask)"


@dataclass(frozen=True)
class Expected:
    """What a model's configuration says of its attention.

    Attributes
    ----------
    masks : tuple of str
        In order.
    kv_heads, scale, softcap
        Of every site; they have 4 heads of 8.
    biased : tuple of int
        The sites that add a bias.
    cross : tuple of int
        Those whose keys come from another sequence.
    sink : bool
        Whether each has one.
    no_attention : int
        How many other Softmaxes there are.
    """

    masks: tuple[str, ...]
    kv_heads: int = 4
    scale: float = 8**-0.5
    softcap: float = 0.0
    biased: tuple[int, ...] = ()
    cross: tuple[int, ...] = ()
    sink: bool = False
    no_attention: int = 0


TRANSLATION = Expected((PADDING, PADDING, DECODER, PADDING, DECODER, PADDING), cross=(3, 5))
EXPECTED = {
    "bert": Expected((PADDING,) * 2),
    "distilbert": Expected((PADDING,) * 2),
    "electra": Expected((PADDING,) * 2),
    "xlmr": Expected((PADDING,) * 2),
    "mpnet": Expected((PADDING,) * 2, biased=(0, 1)),
    # It masks the rows of padding, too, and divides by the root of three head sizes: content and two positions.
    "deberta": Expected((ROWS_AND_COLUMNS,) * 2, scale=24**-0.5, biased=(0, 1)),
    "modernbert": Expected((PADDING, f"window(4, 4) & {PADDING}", f"window(4, 4) & {PADDING}", PADDING)),
    "gpt2": Expected((CAUSAL,) * 2),
    "llama": Expected((CAUSAL,) * 2, kv_heads=2),
    "mistral": Expected((WINDOW,) * 2, kv_heads=2),
    "qwen2": Expected((CAUSAL,) * 2, kv_heads=2),
    # Its query_pre_attn_scalar is 256.
    "gemma2": Expected((WINDOW, CAUSAL), kv_heads=2, scale=1 / 16, softcap=50.0),
    "gemma3": Expected((WINDOW, CAUSAL), kv_heads=2, scale=1 / 16),
    "bart": TRANSLATION,
    "marian": TRANSLATION,
    "t5": Expected(TRANSLATION.masks, scale=1.0, biased=(0, 1, 2, 4), cross=(3, 5)),
    "bloom": Expected((CAUSAL,) * 2, biased=(0, 1)),
    "clip_text": Expected((CAUSAL,) * 2),
    # Its routers choose experts by a softmax.
    "gpt_oss": Expected((WINDOW, CAUSAL), kv_heads=2, sink=True, no_attention=2),
}


def check(path: Path, expected: Expected) -> None:
    """Compare a file's report with what is expected."""
    report = inspect(path)
    assert [site.mask for site in report.sites] == [Mask.parse(text) for text in expected.masks]
    for place, site in enumerate(report.sites):
        assert site.verified, site.note
        assert (site.q_heads, site.kv_heads, site.head_size) == (4, expected.kv_heads, 8)
        assert math.isclose(site.scale, expected.scale, rel_tol=1e-6)
        assert math.isclose(site.softcap, expected.softcap)
        assert (site.bias is not None) == (place in expected.biased)
        assert site.cross == (place in expected.cross)
        assert (site.sink is not None) == expected.sink
        assert site.assumes == ()
    assert [unlifted.attention for unlifted in report.unlifted] == [False] * expected.no_attention


def test_every_architecture_is_expected() -> None:
    assert set(EXPECTED) == set(ARCHITECTURES) - set(REFUSED)


@pytest.mark.parametrize("opset", OPSETS, ids=["default", "23"])
@pytest.mark.parametrize("name", EXPECTED)
def test_plain_exports(zoo: Zoo, name: str, opset: int | None) -> None:
    model = zoo(name, opset)
    softmaxes = {"Softmax", "Attention"}
    check(model.plain, EXPECTED[name])
    nodes = sum(node.op_type in softmaxes for node in onnx.load(model.plain).graph.node)
    assert nodes == len(EXPECTED[name].masks) + EXPECTED[name].no_attention


class Positional(torch.nn.Module):
    """A module that is given its inputs by their places, as tracing does."""

    def __init__(self, module: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.module(**dict(zip(self.names, inputs, strict=True)))["last_hidden_state"]


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_traced_exports(zoo: Zoo, name: str, tmp_path: Path) -> None:
    """By the exporter before the present one."""
    module, inputs, _ = zoo(name).loaded
    path, names = tmp_path / "traced.onnx", list(inputs)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        # The exporter gives the wrapper's mode back to all that is in it, and other tests share the module.
        torch.onnx.export(
            Positional(module, names).eval(),
            tuple(inputs.values()),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=names,
            dynamic_axes={name: {0: "batch", 1: "seq"} for name in names},
        )
    check(path, EXPECTED[name])
