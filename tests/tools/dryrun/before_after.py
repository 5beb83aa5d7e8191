"""What optimizing for CUDA changes: a model's dry run before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from maskport.export import export
from maskport.export.optimizer import optimize
from maskport.export.tracing.quiet import collected
from maskport.models import Causal, Encoder, EncoderLayer, KeyPadding
from maskport.tools.dryrun import Trace, dryrun

SM, TARGET, DTYPE = 90, "cuda:sm90", "float16"
BATCH, LENGTH = 4, 32
# Real tokens of each row, padded on the right.
TOKENS = (32, 20, 9, 3)
LAYERS = (2, 3)


@dataclass(frozen=True)
class Pair:
    """A model as it was exported and as it was optimized."""

    before: Trace
    after: Trace


def attention(trace: Trace) -> str:
    """Return the attention kernels with their counts."""
    counts = Counter(site.kernel for site in trace.attention)
    return ", ".join(f"{count} {kernel}" for kernel, count in counts.items())


def mask_kernels(trace: Trace) -> int:
    """Return how many kernels convert a mask or clean up after one."""
    return sum(count for name, count in trace.kernels().items() if "Mask" in name)


def host_copies(trace: Trace) -> int:
    """Return the copies between host and device from the first to the last node."""
    return trace.copies("h2d", inside=True) + trace.copies("d2h", inside=True)


def inputs_of(path: Path) -> dict[str, np.ndarray]:
    """Return tokens, masks and vectors for a model's inputs."""
    rng = np.random.default_rng(0)
    given = {}
    for value in onnx.load(path, load_external_data=False).graph.input:
        if value.name.endswith("mask"):
            given[value.name] = (np.arange(LENGTH) < np.array(TOKENS)[:, None]).astype(np.int64)
        elif value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            high = 2 if value.name == "token_type_ids" else 98
            given[value.name] = rng.integers(0, high, (BATCH, LENGTH))
        else:
            width = value.type.tensor_type.shape.dim[-1].dim_value
            given[value.name] = rng.standard_normal((BATCH, LENGTH, width)).astype(np.float16)
    return given


def pair(before: Path, **options: Any) -> Pair:
    """Optimize a file and run both dry."""
    after = before.with_name(f"fast-{before.name}")
    with collected():
        optimize(before, after, target=TARGET, dtype=DTYPE, padding_rows="zero", **options)
        return Pair(dryrun(before, SM, inputs_of(before)), dryrun(after, SM, inputs_of(after)))


def reference(folder: Path, name: str, layers: int) -> Path:
    """Export the reference encoder or decoder in float16."""
    import torch

    masks = {"encoder": KeyPadding("attention_mask"), "decoder": Causal() & KeyPadding("attention_mask")}
    module = Encoder(EncoderLayer(64, 4, 128, mask=masks[name], norm_first=name == "decoder"), num_layers=layers).eval()
    axes: Mapping[int, str] = {0: "batch", 1: "seq"}
    given = {"src": torch.randn(2, 9, 64), "attention_mask": torch.ones(2, 9, dtype=torch.int64)}
    path = folder / f"{name}-{layers}.onnx"
    with collected():
        export(module, given, path, dynamic_shapes=dict.fromkeys(given, axes), dtype=DTYPE)
    return path
