"""Masks that modules were made with are read back from their export, many sites in each."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from maskport.export import export, inspect
from maskport.models import Mask, MaskedMultiHeadAttention

from ...models.mask_strategies import masks

# An export takes a second or more, whatever it holds.
SITES, EXPORTS = 40, 5
BATCH, LENGTH, WIDTH = 2, 6, 8


class Sites(torch.nn.Module):
    """Self-attention by each of some masks, over one sequence."""

    def __init__(self, chosen: list[Mask]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(MaskedMultiHeadAttention(WIDTH, 2, mask=mask) for mask in chosen)

    def forward(self, x: torch.Tensor, **tensors: torch.Tensor) -> list[torch.Tensor]:
        return [layer(x, **{name: tensors[name] for name in layer.mask.tensors}) for layer in self.layers]


def _tensors(chosen: list[Mask]) -> dict[str, torch.Tensor]:
    specs = {name: spec for mask in chosen for name, spec in mask.tensors.items()}
    length = {"b": BATCH, "h": 1, "q": LENGTH, "k": LENGTH, "p": LENGTH}
    return {
        name: torch.ones([length[axis] for axis in spec.dims], dtype=torch.bool if spec.dims == "bhqk" else torch.int64)
        for name, spec in specs.items()
    }


def _dynamic(tensors: dict[str, torch.Tensor], chosen: list[Mask]) -> dict[str, dict[int, str]]:
    specs = {name: spec for mask in chosen for name, spec in mask.tensors.items()}
    named = {"b": "batch", "q": "seq", "k": "seq", "p": "seq"}
    return {
        name: {axis: named[letter] for axis, letter in enumerate(specs[name].dims) if letter in named}
        for name in tensors
    }


def _counts_from_elsewhere(mask: Mask) -> bool:
    """Return whether an offset isn't relative to `past`: without a cache, 0 and K - Q are past, too."""
    return any(str(leaf).startswith(("causal(", "window(")) and "past" not in str(leaf) for leaf in mask.leaves)


def _same_without_cache(one: Mask, other: Mask) -> bool:
    random = np.random.default_rng(0)
    for n in range(1, 10):
        for _ in range(8):
            tensors = {
                name: random.integers(0, 3, [{"b": 2, "h": 1}.get(axis, n) for axis in spec.dims])
                for name, spec in (one.tensors | other.tensors).items()
            }
            tensors = {name: array > 0 if array.ndim == 4 else array for name, array in tensors.items()}
            if not np.array_equal(*(np.broadcast_to(m.dense(n, n, **{k: tensors[k] for k in m.tensors}), (2, 1, n, n))
                                    for m in (one, other))):  # fmt: skip
                return False
    return True


@seed(0)
@settings(max_examples=EXPORTS, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(masks(max_leaves=6), min_size=SITES, max_size=SITES))
def test_lifted_is_the_modules(chosen: list[Mask]) -> None:
    tensors = _tensors(chosen)
    inputs = {"x": torch.randn(BATCH, LENGTH, WIDTH), **tensors}
    shapes = {"x": {0: "batch", 1: "seq"}, **_dynamic(tensors, chosen)}
    exported = export(Sites(chosen), inputs, dynamic_shapes=shapes, check=False)
    report = inspect(exported.model)
    assert report.unlifted == ()
    assert len(report.sites) == SITES
    for site, mask in zip(report.sites, chosen, strict=True):
        assert site.mask == mask or (_counts_from_elsewhere(mask) and _same_without_cache(site.mask, mask))
    assert all(site.verified for site in report.sites)
