"""Masks as arrays: a grid of points at once (numpy or torch), chosen rows and columns of it, single points."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from numbers import Integral
from types import ModuleType
from typing import Any

import numpy as np

from .mask_leaves import Expr, TensorSpec, evaluate, leaves_of, tensors_of
from .mask_rows import Affine

__all__ = ["at", "dense", "is_torch", "mask_mod"]


def is_torch(value: object) -> bool:
    """Return whether `value` is a torch tensor, without importing torch: one only exists where it is imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _check_names(expr: Expr, mask: object, tensors: Mapping[str, Any]) -> dict[str, TensorSpec]:
    specs = tensors_of(expr)
    if tensors.keys() != specs.keys():
        needs = ", ".join(f"{name} ({spec.shape})" for name, spec in specs.items()) or "no tensor"
        given = ", ".join(tensors) or "none"
        raise TypeError(f"the mask `{mask}` needs {needs}; given: {given}. Pass each by its name, and no other")
    return specs


def _kind(tensor: Any) -> str:
    """Return "b" for bool, "i" for integers, "f" for the rest."""
    if is_torch(tensor):
        dtype = tensor.dtype
        return "f" if dtype.is_floating_point or dtype.is_complex else "b" if "bool" in str(dtype) else "i"
    return {"b": "b", "i": "i", "u": "i"}.get(np.asarray(tensor).dtype.kind, "f")


def _check_dtype(spec: TensorSpec, tensor: Any) -> None:
    if _kind(tensor) not in spec.kinds:
        raise TypeError(
            f"mask tensor {spec.name!r} is {spec.shape}; got dtype {tensor.dtype}. True, or a value that is not the "
            "pad, means attend; mask_helpers turns other conventions into it"
        )


def _check_shape(spec: TensorSpec, shape: tuple[int, ...], length: Mapping[str, int], past: int) -> None:
    """Raise if a tensor has another rank or length than its leaves read."""
    if spec.dims == "bhqk":
        free, fits = "bhqk", len(shape) <= 4
    else:
        free, fits = "b", len(shape) == spec.rank
    for axis, size in zip(reversed(spec.dims), reversed(shape), strict=False):
        fits = fits and (size == length.get(axis, size) or (axis in free and size == 1))
    at_query = "bp" in spec.reads
    if not fits or (at_query and past + length["q"] > length["k"]):
        sizes = f"Q={length['q']}, K={length['k']}" + (f" and past={past}" if past else "")
        reads = "; it is also read at q + past, which must stay below K" if at_query else ""
        raise ValueError(
            f"mask tensor {spec.name!r} is {spec.shape}, here with {sizes}{reads}; got shape {list(shape)}"
        )


class _Grid:
    """All points of a grid: every value broadcasts to [B, H, Q, K] (see mask_leaves.Points)."""

    def __init__(self, xp: Any, device: Any, q_len: Any, k_len: Any, past: Any, tensors: Mapping[str, Any]) -> None:
        placed = {} if device is None else {"device": device}
        self.tensors, self.q_len, self.k_len, self.past = tensors, q_len, k_len, past
        self.q = xp.arange(q_len, **placed)[None, None, :, None]
        self.k = xp.arange(k_len, **placed)[None, None, None, :]
        self.p = self.q + past
        self.true = xp.ones((1, 1, 1, 1), dtype=xp.bool, **placed)

    def load(self, name: str, axes: str) -> Any:
        tensor = self.tensors[name]
        if axes == "bhqk":
            return tensor[(None,) * (4 - len(tensor.shape))]
        if axes == "bp":
            tensor, axes = tensor[:, self.past : self.past + self.q_len], "bq"
        return tensor[tuple(slice(None) if axis in axes else None for axis in "bhqk")]

    def row(self, affine: Affine) -> Any:
        value = affine.const + affine.past * self.past + affine.q_len * self.q_len + affine.k_len * self.k_len
        return value if affine.row is None else value + self.load(affine.row, "b")


def dense(expr: Expr, mask: object, q_len: int, k_len: int, past: int, device: Any, tensors: Mapping[str, Any]) -> Any:
    """Evaluate an expression at every point; see `Mask.dense`."""
    specs = _check_names(expr, mask, tensors)
    devices = [tensor.device for tensor in tensors.values() if is_torch(tensor)]
    xp: ModuleType = np
    placed: dict[str, Any]
    if device is not None or devices:
        import torch

        xp, device = torch, device if device is not None else devices[0]
        placed = {name: torch.as_tensor(tensor, device=device) for name, tensor in tensors.items()}
    else:
        placed = {name: np.asarray(tensor) for name, tensor in tensors.items()}
    for name, spec in specs.items():
        _check_dtype(spec, placed[name])
    # While torch.export traces, lengths are symbols: comparing them would fix them in the exported program.
    if all(isinstance(size, Integral) for size in (q_len, k_len, past)):
        if min(q_len, k_len, past) < 0:
            raise ValueError(f"lengths are not negative; got q_len={q_len}, k_len={k_len}, past={past}")
        for name, spec in specs.items():
            _check_shape(spec, tuple(placed[name].shape), {"q": q_len, "k": k_len}, past)
    return evaluate(expr, _Grid(xp, device, q_len, k_len, past, placed))


class _Chosen(_Grid):
    """Chosen rows and columns of a grid, so that the lengths may be larger than any grid that fits in memory."""

    def __init__(
        self, q: np.ndarray, k: np.ndarray, q_len: int, k_len: int, past: int, tensors: Mapping[str, Any]
    ) -> None:
        # Without the grid's own indices, which may not fit in memory.
        self.tensors, self.q_len, self.k_len, self.past = tensors, q_len, k_len, past
        self.index = {"q": q, "k": k, "p": q + past}
        self.q, self.k = q[None, None, :, None], k[None, None, None, :]
        self.p = self.q + past
        self.true = np.ones((1, 1, 1, 1), np.bool)

    def load(self, name: str, axes: str) -> Any:
        tensor = self.tensors[name]
        if axes == "bhqk":
            tensor = tensor[(None,) * (4 - tensor.ndim)]
        for place, axis in enumerate(axes):
            # A broadcast axis has one element, whatever the index. `take` would copy a broadcast tensor as a whole.
            if axis in self.index and tensor.shape[place] != 1:
                tensor = tensor[(*[slice(None)] * place, self.index[axis])]
        return tensor[tuple(slice(None) if axis in axes.replace("p", "q") else None for axis in "bhqk")]


def at(
    expr: Expr, mask: object, q: Any, k: Any, q_len: int, k_len: int, past: int, tensors: Mapping[str, Any]
) -> np.ndarray:
    """Evaluate an expression at chosen queries and keys; see `Mask.at`."""
    specs = _check_names(expr, mask, tensors)
    placed = {name: np.asarray(tensor) for name, tensor in tensors.items()}
    for name, spec in specs.items():
        _check_dtype(spec, placed[name])
        _check_shape(spec, placed[name].shape, {"q": q_len, "k": k_len}, past)
    q, k = np.asarray(q, np.int64), np.asarray(k, np.int64)
    attend = evaluate(expr, _Chosen(q, k, q_len, k_len, past, placed))
    return np.broadcast_to(attend, (*attend.shape[:2], q.size, k.size))


class _Point:
    """One point whose indices are torch scalars, often batched by vmap (see mask_leaves.Points)."""

    def __init__(
        self, index: Mapping[str, Any], past: Any, lengths: Mapping[str, Any], tensors: Mapping[str, Any]
    ) -> None:
        import torch

        self.index = {axis: torch.as_tensor(value) for axis, value in index.items()}
        self.q, self.k = self.index["q"], self.index["k"]
        self.index["p"] = self.p = self.q + past
        self.true = torch.ones_like(self.k, dtype=torch.bool)
        self.past, self.lengths, self.tensors = past, lengths, tensors

    def load(self, name: str, axes: str) -> Any:
        tensor = self.tensors[name]
        axes = axes[len(axes) - tensor.dim() :]
        # A broadcast axis has one element, whatever the index.
        at = [self.index[axis] * (size != 1) for axis, size in zip(axes, tensor.shape, strict=True)]
        return tensor[tuple(at)] if at else tensor

    def row(self, affine: Affine) -> Any:
        value = affine.const + affine.past * self.past
        value = value + affine.q_len * self.lengths["Q"] + affine.k_len * self.lengths["K"]
        return value if affine.row is None else value + self.load(affine.row, "b")


def mask_mod(
    expr: Expr, mask: object, past: int, q_len: int | None, k_len: int | None, tensors: Mapping[str, Any]
) -> Callable[[Any, Any, Any, Any], Any]:
    """Return an expression as a FlexAttention callable; see `Mask.mask_mod`."""
    import torch

    specs = _check_names(expr, mask, tensors)
    placed = {name: torch.as_tensor(tensor) for name, tensor in tensors.items()}
    for name, spec in specs.items():
        _check_dtype(spec, placed[name])
    offsets = [argument for leaf in leaves_of(expr) for argument in leaf[1:] if isinstance(argument, Affine)]
    for symbol, length, used in (("Q", q_len, "q_len"), ("K", k_len, "k_len")):
        if length is None and any(getattr(offset, used) for offset in offsets):
            raise TypeError(f"the mask `{mask}` depends on {symbol}: pass {used}=...")
    lengths = {"Q": q_len or 0, "K": k_len or 0}

    def attend(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return evaluate(expr, _Point({"b": b, "h": h, "q": q_idx, "k": kv_idx}, past, lengths, placed))

    return attend
