"""Torch tensors in and out by IOBinding: ONNX Runtime reads their memory and hands its own back by DLPack.

Nothing passes through the host that isn't there already. ONNX Runtime's CUDA provider has a stream of its own, so two
points in time matter: the inputs must be ready before the run, as DLPack's hand-over (stream -1) doesn't wait; and the
run is over when it returns. An output's memory belongs to ONNX Runtime, which may give it to the next run as soon as
the tensor is gone, while torch's kernels still read it. On a device the output is therefore copied there, once, into
torch's own memory, which torch frees in the order of its streams. The CPU has no such queue and needs no copy.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from .element_types import ELEMENT_TYPES


def run_bound(session: ort.InferenceSession, values: Mapping[str, Any], outputs: Sequence[str]) -> dict[str, Any]:
    """Run once with torch tensors, and numpy arrays among them, and return torch tensors.

    Parameters
    ----------
    session
        Bindings are made for this call alone, so that calls don't share state.
    values
        Contiguous tensors and arrays by name, of types that the model takes.
    outputs
        Names of the outputs to compute. They are on the device of the inputs: a CUDA device if one is there.
    """
    torch: Any = sys.modules["torch"]
    tensors = [value for value in values.values() if not isinstance(value, np.ndarray)]
    device = next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), torch.device("cpu"))
    on_device = device.type != "cpu"
    if on_device:
        torch.cuda.current_stream(device).synchronize()
    binding = session.io_binding()
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            binding.bind_cpu_input(name, value)
        else:
            place = (value.device.type, value.device.index or 0)
            binding.bind_input(name, *place, _ONNX_TYPES[str(value.dtype)], tuple(value.shape), value.data_ptr())
    for name in outputs:
        binding.bind_output(name, device.type, device.index or 0)
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    results = {}
    for name, value in zip(outputs, binding.get_outputs(), strict=True):
        if not value.is_tensor():
            raise TypeError(f"output {name!r} is no tensor; give numpy arrays, or leave it out of outputs")
        tensor = torch.from_dlpack(value)
        # ONNX Runtime writes bool as uint8 into DLPack.
        tensor = tensor.view(torch.bool) if value.data_type() == "tensor(bool)" else tensor
        results[name] = tensor.clone() if on_device else tensor
    if on_device:
        torch.cuda.current_stream(device).synchronize()
    return results


_ONNX_TYPES = {element.torch: element.onnx for element in ELEMENT_TYPES.values()}
