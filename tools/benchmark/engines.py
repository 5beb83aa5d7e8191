"""How each candidate runs: from what it is given to a function of a batch, which returns the first output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Run = Callable[[Arrays], np.ndarray]


def torch(source: str, threads: int) -> Callable[[], Run]:
    """PyTorch as it is (attention by ``scaled_dot_product_attention``)."""
    import torch

    from .subjects import build

    torch.set_num_threads(threads)
    module = build(source).module

    def run(batch: Arrays) -> np.ndarray:
        with torch.inference_mode():
            outputs: Any = module(**{name: torch.from_numpy(array) for name, array in batch.items()})
        return _first(outputs).numpy()

    return lambda: run


def compiled(source: str, threads: int) -> Callable[[], Run]:
    """``torch.compile``, sizes free, weights frozen (so that oneDNN packs them)."""
    import torch
    import torch._inductor.config as inductor

    from .subjects import build

    torch.set_num_threads(threads)
    inductor.freezing = True
    module = torch.compile(build(source).module, dynamic=True)

    def run(batch: Arrays) -> np.ndarray:
        # Freezing is for no_grad; inference tensors can't be compiled with it.
        with torch.no_grad():
            outputs: Any = module(**{name: torch.from_numpy(array) for name, array in batch.items()})
        return _first(outputs).numpy()

    return lambda: run


def onnxruntime(source: str, threads: int) -> Callable[[], Run]:
    """ONNX Runtime on the CPU, with denormals as zero: masked positions leave many, which slow all but the best."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.set_denormal_as_zero", "1")

    def load() -> Run:
        session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        names = {value.name for value in session.get_inputs()}
        output = session.get_outputs()[0].name
        return lambda batch: np.asarray(session.run([output], {k: v for k, v in batch.items() if k in names})[0])

    return load


def openvino(source: str, threads: int) -> Callable[[], Run]:
    """OpenVINO on the CPU, in float32, for latency."""
    import openvino

    core = openvino.Core()
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }

    def load() -> Run:
        model = core.compile_model(source, "CPU", options)
        request = model.create_infer_request()
        return lambda batch: request.infer(batch)[model.outputs[0]].copy()

    return load


def ctranslate2(source: str, threads: int) -> Callable[[], Run]:
    """CTranslate2's encoder in float32: it takes tokens and lengths, so that padding is on the right."""
    import ctranslate2

    view = ctranslate2.StorageView.from_array

    def load() -> Run:
        encoder = ctranslate2.Encoder(source, device="cpu", inter_threads=1, intra_threads=threads)

        def run(batch: Arrays) -> np.ndarray:
            lengths = batch["attention_mask"].sum(axis=1).astype(np.int32)
            found = encoder.forward_batch(view(np.ascontiguousarray(batch["input_ids"], np.int32)), view(lengths))
            return np.array(found.last_hidden_state)

        return run

    return load


ENGINES: dict[str, Callable[[str, int], Callable[[], Run]]] = {
    "torch": torch,
    "compiled": compiled,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "ctranslate2": ctranslate2,
}


def _first(outputs: Any) -> Any:
    if hasattr(outputs, "to_tuple"):
        outputs = outputs.to_tuple()
    elif isinstance(outputs, dict):
        outputs = tuple(outputs.values())
    return outputs[0] if isinstance(outputs, tuple | list) else outputs
