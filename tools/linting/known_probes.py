"""Whether each known fault is there, found by running a small model that has it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...export.probe import broadcasts_attention_masks, mixes_rms_norm_types, shares_rotary_caches
from ...export.tracing.quiet import collected

if TYPE_CHECKING:
    import onnx
    from torch import nn

WINDOW = """
<ir_version: 10, opset_import: ["": 25]>
attend (float[1, 1, 2, 2] q) => (float[1, 1, 2, 2] y) { y = Attention <ATTRIBUTE = 1> (q, q, q) }
"""
UNMASKED = """
<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>
attend (float[1, 2, 2] q, int32[1, 2] m) => (float[1, 2, 2] y) {
    y = com.microsoft.MultiHeadAttention <num_heads = 1> (q, q, q, , m)
}
"""
EMPTY = """
<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>
attend (float[B, 2, 8] q, int32[B] n, int32 t) => (float[B, 2, 8] y) {
    y = com.microsoft.GroupQueryAttention <num_heads = 1, kv_num_heads = 1> (q, q, q, , , n, t)
}
"""
# A process of its own may end by a signal.
CHILD = """
import sys
import numpy as np, onnxruntime as ort
session = ort.InferenceSession(sys.stdin.buffer.read(), providers=["CPUExecutionProvider"])
feeds = {"q": np.zeros((0, 2, 8), np.float32), "n": np.zeros(0, np.int32), "t": np.array(2, np.int32)}
try:
    session.run(None, feeds)
except Exception:
    pass
"""
FATAL_ONLY = 4


def rotary_batch() -> bool:
    """Whether caches of batch 1 are refused."""
    _need_runtime()
    return not shares_rotary_caches()


def key_mask_rank() -> bool:
    """Whether a mask of one row is refused."""
    _need_runtime()
    return not broadcasts_attention_masks()


def rms_norm_types() -> bool:
    """Whether two types are refused."""
    _need_runtime()
    return not mixes_rms_norm_types()


def attention_window() -> bool:
    """Whether a window of opset 25 is refused, where the same without one runs."""
    feeds = {"q": np.ones((1, 1, 2, 2), np.float32)}
    causal, window = (
        _run(_parse(WINDOW.replace("ATTRIBUTE", name)), feeds) for name in ("is_causal", "left_window_size")
    )
    return causal is not None and window is None


def empty_batch() -> bool:
    """Whether the process ends by a signal."""
    _need_runtime()
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=_parse(EMPTY).SerializeToString(), capture_output=True, check=False
    )
    return done.returncode < 0


def unmasked_row() -> bool:
    """Whether a row whose keys are all masked is the softmax over its scores as they were."""
    q = np.array([[[3, 0], [0, 1]]], np.float32)
    masked, shown = (_run(_parse(UNMASKED), {"q": q, "m": np.full((1, 2), kept, np.int32)}) for kept in (0, 1))
    return masked is not None and shown is not None and np.allclose(masked, shown, atol=1e-3)


def mean_row() -> bool:
    """Whether the export of an attention gives the mean of the values where no key is left, and eager mode gives 0."""
    import torch
    from torch import nn

    class Attend(nn.Module):
        def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=keep)

    module, x = Attend(), torch.arange(12.0).reshape(1, 1, 3, 4)
    keep = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    exported = _exported(module, {"x": x, "keep": keep}, opset_version=20)
    keep[..., 1, :] = False
    y = _run(exported, {"x": x.numpy(), "keep": keep.numpy()})
    assert y is not None
    return bool((module(x, keep)[0, 0, 1] == 0).all()) and np.allclose(y[0, 0, 1], x.numpy()[0, 0].mean(0))


def half_fill() -> bool:
    """Whether the export of a product with -1e9 gives NaN where eager mode doesn't."""
    import torch
    from torch import nn

    class Attend(nn.Module):
        def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x + hidden * -1e9, -1)

    module, x = Attend(), torch.ones(1, 3, dtype=torch.float16)
    hidden = torch.tensor([[0, 0, 1]], dtype=torch.float16)
    y = _run(_exported(module, {"x": x, "hidden": hidden}), {"x": x.numpy(), "hidden": hidden.numpy()})
    assert y is not None
    return not bool(module(x, hidden).isnan().any()) and bool(np.isnan(y).any())


def traced_batch() -> bool:
    """Whether the export of an attention is right at the example's sizes alone."""
    import onnx
    import torch
    from torch import nn

    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x, need_weights=False)[0]

    torch.manual_seed(0)
    # In training mode it has no fast path, which this exporter doesn't know.
    module, example, other = Attend().train(), torch.randn(2, 5, 4), torch.randn(3, 7, 4)
    axes = {"x": {0: "batch", 1: "seq"}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traced.onnx"
        with collected():
            torch.onnx.export(
                module, (example,), path, input_names=["x"], dynamic_axes=axes, dynamo=False, verbose=False
            )
        model = onnx.load(path)

    def is_right(x: torch.Tensor) -> bool:
        y, expected = _run(model, {"x": x.numpy()}), module(x).detach().numpy()
        return y is not None and y.shape == expected.shape and np.allclose(y, expected, atol=1e-4)

    return is_right(example) and not is_right(other)


def rotary_export() -> bool:
    """Whether the repair for it has something to do in a tiny Llama."""
    import onnx_ir as ir
    import torch
    from transformers import LlamaConfig, LlamaModel

    from ...export.repairs.rotary_batch import RotaryBatchPass

    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    config = LlamaConfig(vocab_size=16, num_hidden_layers=1, use_cache=False, **sizes)
    inputs = {"input_ids": torch.ones(2, 5, dtype=torch.int64), "attention_mask": torch.ones(2, 5, dtype=torch.int64)}
    shapes = {name: {0: "batch", 1: "seq"} for name in inputs}
    model = _exported(LlamaModel(config).eval(), inputs, opset_version=23, dynamic_shapes={**shapes})
    # Where ONNX Runtime takes such caches the repair has nothing to do.
    return not shares_rotary_caches() and bool(RotaryBatchPass().find(ir.from_proto(model)))


def _exported(module: nn.Module, inputs: dict[str, Any], **options: Any) -> onnx.ModelProto:
    """Return what PyTorch's exporter makes of a module, as it is."""
    import torch

    with collected(), torch.no_grad():
        program = torch.onnx.export(module, kwargs=inputs, dynamo=True, verbose=False, **options)
    assert program is not None
    return program.model_proto


def _need_runtime() -> None:
    import onnxruntime  # noqa: F401


def _parse(text: str) -> onnx.ModelProto:
    from onnx import parser

    return parser.parse_model(text)


def _run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Run a model of one output on the CPU; None if ONNX Runtime refuses it."""
    import onnxruntime as ort

    options, run_options = ort.SessionOptions(), ort.RunOptions()
    options.log_severity_level = run_options.log_severity_level = FATAL_ONLY
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, dict(feeds), run_options)[0])
    except Exception:  # Its errors have no common class but this.
        return None
