"""What an eager module computes on its way: every tensor, with the submodule and the line of code that made it."""

from __future__ import annotations

import contextlib
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ...export.check.arrays import to_numpy
from ...export.tracing.traces import last_frame, module_packages, shorten_trace, trace_roots
from .value_twins import Known

# All values together; what comes after is not kept.
MAX_BYTES = 1 << 29
# Of a line's callers, so many are looked at for one that is the module's own.
MAX_FRAMES = 64
Frame = tuple[str, int, str]


@dataclass(frozen=True)
class Place:
    """Where a tensor was computed.

    Attributes
    ----------
    module
        Path of the submodule; empty for the module itself.
    frames
        File, line and function of the code, the innermost first.
    packages
        Installed packages whose code is the module's own.
    """

    module: str
    frames: tuple[Frame, ...]
    packages: frozenset[str]

    def __str__(self) -> str:
        trace = "\n".join(
            f'File "{file}", line {line}, in {name}\n    {linecache.getline(file, line).strip()}'
            for file, line, name in reversed(self.frames)
        )
        line = last_frame(shorten_trace(trace, trace_roots(), self.packages))
        return " ".join(
            part for part in (f"`{self.module}`" if self.module else "", f"({line})" if line else "") if part
        )


def values_of(module: nn.Module, run: Callable[[], object]) -> list[Known]:
    """Run a module and return the tensors that it computes, in their order.

    Attention is computed step by step, so that scores and weights are among them.

    Parameters
    ----------
    module
        Is left as it is.
    run
        Calls it.
    """
    watching = _Watching(frozenset(module_packages(module)))
    with contextlib.ExitStack() as stack:
        for name, part in module.named_modules():
            stack.enter_context(watching.within(name, part))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(watching)
        run()
    return watching.found


class _Watching(TorchDispatchMode):
    """Keeps what each operator returns."""

    def __init__(self, packages: frozenset[str]) -> None:
        super().__init__()
        self.packages = packages
        self.found: list[Known] = []
        self.path: list[str] = []
        self.left = MAX_BYTES

    @contextlib.contextmanager
    def within(self, name: str, part: nn.Module) -> Iterator[None]:
        """Know when a submodule is running."""
        before = part.register_forward_pre_hook(lambda *_: self.path.append(name))
        after = part.register_forward_hook(lambda *_: self._leave(), always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _leave(self) -> None:
        self.path.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator."""
        returned = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(returned):
            # What isn't computed within the module is its input, or a check of ours.
            if isinstance(leaf, torch.Tensor) and self.path and leaf.nbytes <= self.left:
                self.left -= leaf.nbytes
                self.found.append(Known(to_numpy(leaf), Place(self.path[-1], _frames(), self.packages)))
        return returned


def _frames() -> tuple[Frame, ...]:
    """Return who called an operator, up to the module's caller."""
    found: list[Frame] = []
    frame = sys._getframe(2)
    while frame is not None and frame.f_code is not values_of.__code__ and len(found) < MAX_FRAMES:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)
