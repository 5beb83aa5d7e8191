"""What the export changes in the module and in PyTorch, and puts back."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn


@contextlib.contextmanager
def evaluation(module: nn.Module) -> Iterator[None]:
    """Put every submodule into evaluation mode, and back."""
    before = [(submodule, submodule.training) for submodule in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for submodule, training in before:
            submodule.training = training


@contextlib.contextmanager
def in_dtype(module: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """Give the module's floating-point parameters and buffers another element type, and back, bit for bit.

    With None it keeps its own. What the module writes into its buffers meanwhile is lost, so that tracing and running
    it leave no mark.
    """
    parameters = [p for p in module.parameters() if dtype is not None and p.is_floating_point()]
    before = [(tensor, tensor.data) for tensor in (*parameters, *module.buffers())]
    registered = [(part._buffers, dict(part._buffers)) for part in module.modules()]
    try:
        for tensor, data in before:
            wanted = dtype if dtype is not None and data.is_floating_point() else data.dtype
            tensor.data = data.to(wanted, copy=True)
        yield
    finally:
        for buffers, names in registered:
            buffers.clear()
            buffers.update(names)
        for tensor, data in before:
            tensor.data = data


@contextlib.contextmanager
def no_fast_path() -> Iterator[None]:
    """Switch the fused inference path of torch.nn's attention off, and back.

    It has no ONNX form. The exporter of PyTorch 2.13 keeps off it by itself, but doesn't promise to.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def forward_of(module: nn.Module, names: list[str], constants: Mapping[str, Any]) -> Iterator[None]:
    """Give the module a ``forward`` whose parameters are exactly `names`, in order, and take it away again.

    PyTorch's exporter doesn't pair shapes with ``**kwargs`` by name. A wrapping module would put its own name
    before that of every weight and node.
    """
    original = module.forward
    replaced = vars(module).get("forward")

    def forward(*tensors: torch.Tensor) -> Any:
        return original(**dict(zip(names, tensors, strict=True)), **constants)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    forward.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        if replaced is None:
            del vars(module)["forward"]
        else:
            vars(module)["forward"] = replaced
