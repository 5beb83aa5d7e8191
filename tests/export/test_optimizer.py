"""optimize as a whole: what is left alone or refused, speed, reference modules with random masks, ONNX's cases."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from maskport.export import OptimizeError, export, optimize
from maskport.models import Decoder, DecoderLayer, Encoder, EncoderLayer, KeyPadding, Mask

from ..models.mask_strategies import masks
from .packing.test_random_masks import valid
from .packing.token_models import PATTERNS, agree_on, attend, made_by, masked, model, runner
from .symbolic.test_onnx_cases import cases

WIDTH = 16
FUSIONS = ("concat", "self_attention", "cross_head")
TARGETS: dict[str, tuple[dict[str, Any], float]] = {
    "any": ({"padding_rows": "any"}, 2e-5),
    "keep": ({"padding_rows": "keep"}, 2e-5),
    "cuda": ({"target": "cuda:sm80", "dtype": "float16", "padding_rows": "any"}, 2e-2),
}


class Both(torch.nn.Module):
    """A decoder over an encoder, of two layers each, with their own padding."""

    def __init__(self, fusion: str) -> None:
        super().__init__()
        padding, causal = KeyPadding("m"), Mask.parse("causal & padding(n)")
        layer = EncoderLayer(WIDTH, 2, 24, dropout=0.0, mask=padding, fusion=fusion)
        self.encoder = Encoder(layer, 2)
        other = DecoderLayer(WIDTH, 2, 24, dropout=0.0, mask=causal, memory_mask=padding, fusion=fusion)
        self.decoder = Decoder(other, 2)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor, m: torch.Tensor, n: torch.Tensor) -> Any:
        return self.decoder(tgt, self.encoder(src, m=m), m=m, n=n)


def exported(module: torch.nn.Module, mask: Mask) -> ir.Model:
    """Export an encoder over `src` with the tensors of its mask."""
    length = {"b": 3, "h": 1, "q": 6, "k": 6, "p": 6}
    dims = {name: spec.dims for name, spec in mask.tensors.items()}
    tensors = {
        name: torch.ones([length[x] for x in axes], dtype=torch.bool if axes == "bhqk" else torch.int64)
        for name, axes in dims.items()
    }
    shapes = {
        name: {i: "batch" if x == "b" else "seq" for i, x in enumerate(axes) if x != "h"} for name, axes in dims.items()
    }
    inputs = {"src": torch.randn(3, 6, WIDTH), **tensors}
    return export(module, inputs, dynamic_shapes={"src": {0: "batch", 1: "seq"}, **shapes}, check=False).model


def drawn(mask: Mask, batch: int, length: int, pattern: str, seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    sizes = {"b": batch, "h": 1, "q": length, "k": length, "p": length}
    found = {"src": random.standard_normal((batch, length, WIDTH)).astype(np.float32)}
    for name, spec in mask.tensors.items():
        array = random.integers(0, 3, [sizes[x] for x in spec.dims])
        found[name] = array > 0 if spec.dims == "bhqk" else array
    return found | {"m": masked(pattern, batch, length, random)}


def compared(module: torch.nn.Module, mask: Mask, seed: int) -> None:
    """Compare what is made of a module with the module."""
    source = exported(module, mask)
    made = {name: optimize(source, check=False, **options) for name, (options, _) in TARGETS.items()}
    runs = {name: runner(result.model) for name, result in made.items()}
    for number, (batch, length) in enumerate(((3, 7), (2, 4), (1, 1))):
        given = drawn(mask, batch, length, PATTERNS[(seed + number) % len(PATTERNS)], seed)
        with torch.no_grad():
            tensors = {name: torch.from_numpy(given[name]) for name in mask.tensors}
            expected = module(torch.from_numpy(given["src"]), **tensors).numpy()
        for name, (options, tolerance) in TARGETS.items():
            (actual,) = runs[name](given).values()
            rows = valid(mask, given, options["padding_rows"])
            agree_on(rows, expected, actual, tolerance, f"{mask}, {name}, {batch}x{length}, seed {seed}")


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("text", ["padding(m)", "causal & padding(m)", "padding(m) & adjacency(g)"])
def test_reference_encoders(fusion: str, text: str) -> None:
    torch.manual_seed(0)
    mask = Mask.parse(text)
    layer = EncoderLayer(WIDTH, 2, 24, dropout=0.0, mask=mask, fusion=fusion)
    compared(Encoder(layer, 2).eval(), mask, 0)


@settings(
    max_examples=4, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(mask=masks(4), seed=st.integers(0, 99))
def test_reference_encoders_with_random_masks(mask: Mask, seed: int) -> None:
    torch.manual_seed(seed)
    compared(Encoder(EncoderLayer(WIDTH, 2, 24, dropout=0.0, mask=mask), 2).eval(), mask, seed)


@pytest.mark.parametrize("fusion", FUSIONS)
def test_reference_decoders(fusion: str) -> None:
    torch.manual_seed(0)
    module = Both(fusion).eval()
    ones = {"m": torch.ones(3, 6, dtype=torch.int64), "n": torch.ones(3, 4, dtype=torch.int64)}
    inputs = {"src": torch.randn(3, 6, WIDTH), "tgt": torch.randn(3, 4, WIDTH), **ones}
    shapes = {"src": {0: "batch", 1: "seq"}, "m": {0: "batch", 1: "seq"}}
    shapes |= {"tgt": {0: "batch", 1: "target"}, "n": {0: "batch", 1: "target"}}
    source = export(module, inputs, dynamic_shapes=shapes, check=False).model
    random = np.random.default_rng(0)
    for options, tolerance in TARGETS.values():
        run = runner(optimize(source, check=False, **options).model)
        for pattern in PATTERNS[:5]:
            arrays = {"src": random.standard_normal((3, 7, WIDTH)), "tgt": random.standard_normal((3, 5, WIDTH))}
            feeds = {name: array.astype(np.float32) for name, array in arrays.items()}
            feeds |= {"m": masked(pattern, 3, 7, random), "n": masked("right", 3, 5, random)}
            with torch.no_grad():
                expected = module(**{name: torch.from_numpy(array) for name, array in feeds.items()}).numpy()
            (actual,) = run(feeds).values()
            agree_on(feeds["n"] != 0, expected, actual, tolerance, f"{fusion}, {options}, {pattern}")


# What ONNX's own runner gives of a case may be NaN in rows without keys; what is made of it is a number there.
@pytest.mark.parametrize("name", sorted(cases()))
def test_onnx_cases(name: str) -> None:
    """ONNX's decompositions of its Attention, for the CPU and for CUDA: right, or left as they are with a reason."""
    case = cases()[name]
    names = [value.name for value in case.expanded.graph.output]
    try:
        expected = runner(ir.from_proto(case.expanded))(case.inputs)
    except Exception:
        pytest.skip("ONNX Runtime doesn't run it")
    for target in ("cpu", "cuda"):
        result = optimize(case.expanded, target=target, check=False)
        assert result.changed or result.notes
        actual = runner(result.model)(case.inputs)
        for output in names:
            one, two = actual[output], expected[output]
            assert one.dtype == two.dtype
            known = np.isfinite(two.astype(np.float64))
            limit = 1e-2 if two.dtype.itemsize == 2 else 2e-5
            np.testing.assert_allclose(
                one[known].astype(np.float64), two[known].astype(np.float64), atol=limit, rtol=limit
            )


def test_a_file_without_attention_is_left_alone(tmp_path: Path) -> None:
    source = model(attention="o = Gelu(h)")
    result = optimize(source, tmp_path / "m.onnx")
    assert not result.changed
    assert result.notes[0] == "no attention was rewritten"
    assert onnx.load(tmp_path / "m.onnx").graph == ir.to_proto(ir.from_proto(source)).graph


def test_attention_that_is_not_understood_is_left_alone_with_its_reason() -> None:
    source = model(attention=attend("h", "o", scores="o_t = Sin(o_s)"))
    result = optimize(source)
    assert not result.changed
    assert len(result.notes) == 2
    assert "left as it is" in result.notes[1]


def test_what_is_asked_for_must_exist() -> None:
    for wrong in ({"padding_rows": "none"}, {"packing": "much"}, {"target": "tpu"}, {"dtype": "int3"}):
        with pytest.raises(OptimizeError):
            optimize(model(), **wrong)


def test_zero_rows_are_zero_without_packing() -> None:
    source = model()
    result = made_by(source, padding_rows="zero", packing="none")
    run = runner(result.model)
    given = {"x": np.ones((2, 5, 16), np.float32), "m": np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 0]])}
    assert not run(given)["y"][given["m"] == 0].any()
    assert run(given)["y"][given["m"] != 0].all()


def test_a_base_model_takes_seconds() -> None:
    """Twelve layers of 768, with the check."""
    torch.manual_seed(0)
    mask = KeyPadding("m")
    encoder = Encoder(EncoderLayer(768, 12, 3072, dropout=0.0, mask=mask), 12).eval()
    inputs = {"src": torch.randn(2, 8, 768), "m": torch.ones(2, 8, dtype=torch.int64)}
    shapes = {name: {0: "batch", 1: "seq"} for name in inputs}
    source = export(encoder, inputs, dynamic_shapes=shapes, check=False).model
    start = time.perf_counter()
    result = optimize(source)
    assert time.perf_counter() - start < 20
    assert len(result.sites) == 12
    assert result.proof is not None
