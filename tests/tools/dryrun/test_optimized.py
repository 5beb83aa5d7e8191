"""What optimizing for CUDA changes, told by dry runs of the reference encoder and decoder."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from .before_after import LAYERS, host_copies, mask_kernels, pair, reference


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_flash_at_every_site_and_fewer_launches_a_layer(name: str, tmp_path: Path) -> None:
    pairs = [pair(reference(tmp_path, name, layers)) for layers in LAYERS]
    for found, layers in zip(pairs, LAYERS, strict=True):
        assert [site.kernel for site in found.before.attention] == ["math"] * layers
        assert {site.kernel for site in found.after.attention} <= {"flash", "cudnn"}
        assert len(found.after.attention) >= layers
        assert mask_kernels(found.after) == 0
    before, after = (
        getattr(pairs[1], side).launches - getattr(pairs[0], side).launches for side in ("before", "after")
    )
    assert after < before
    # What is copied to the host, the tokens' counts, doesn't grow with the layers.
    assert host_copies(pairs[0].after) == host_copies(pairs[1].after)


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_without_packing_the_result_is_a_cuda_graph(name: str, tmp_path: Path) -> None:
    found = pair(reference(tmp_path, name, LAYERS[0]), packing="none")
    assert {site.kernel for site in found.after.attention} <= {"flash", "cudnn"}
    assert host_copies(found.after) == mask_kernels(found.after) == 0
    assert found.after.cuda_graph.capturable
    assert found.after.launches < found.before.launches
