"""Torch tensors as numpy arrays and back, bfloat16 included."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Return a copy of a tensor as an array; numpy has bfloat16 from ml_dtypes."""
    tensor = tensor.detach().cpu().clone()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    array: np.ndarray = tensor.numpy()
    return array


def to_torch(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return a copy of an array as a tensor on `device`."""
    array = np.array(array, order="C")
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(array).to(device)
