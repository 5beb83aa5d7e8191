"""A budget: how much a model may ask of the device, checked in CI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import ToolError
from ..shown import joined
from .trace import Trace

KERNELS = ("flash", "memory_efficient", "math", "cudnn", "trt", "xqa", "none")
# What can be bounded.
COUNTS: dict[str, Callable[[Trace], int]] = {
    "launches": lambda trace: trace.launches,
    "library_calls": lambda trace: trace.library_calls,
    "h2d": lambda trace: trace.copies("h2d"),
    "d2h": lambda trace: trace.copies("d2h"),
    "d2d": lambda trace: trace.copies("d2d"),
    "inside": lambda trace: trace.copies("h2d", inside=True) + trace.copies("d2h", inside=True),
    "syncs": lambda trace: trace.syncs,
    "cpu_nodes": lambda trace: len(trace.cpu_nodes),
    "memory_mb": lambda trace: -(-trace.memory // 10**6),
}
EXAMPLE = "launches=40,d2h=1,attention=flash+cudnn"


@dataclass(frozen=True)
class Budget:
    """What a model may ask of the device.

    Attributes
    ----------
    most
        The largest count of each that is bounded, by its name in :data:`COUNTS`.
    attention
        The kernels that attention may get; empty for any.
    graph
        Whether a CUDA graph must be possible.
    """

    most: Mapping[str, int]
    attention: tuple[str, ...] = ()
    graph: bool = False

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read a budget as the command line writes it: ``launches=40,d2h=1,attention=flash+cudnn,graph``.

        Raises
        ------
        ToolError
            If a part can't be meant.
        """
        most: dict[str, int] = {}
        kernels: tuple[str, ...] = ()
        graph = False
        for part in text.split(","):
            name, equals, value = part.strip().partition("=")
            if name == "graph" and not equals:
                graph = True
            elif name == "attention" and value and not set(value.split("+")) - set(KERNELS):
                kernels = tuple(value.split("+"))
            elif name in COUNTS and value.isascii() and value.isdecimal():
                most[name] = int(value)
            else:
                raise ToolError(
                    f"--budget has {part.strip()!r}; give a number for {', '.join(COUNTS)}, kernels for attention "
                    f"({', '.join(KERNELS)}), or graph, for example {EXAMPLE}"
                )
        return cls(most, kernels, graph)

    def overrun(self, trace: Trace) -> list[str]:
        """Return what is over the budget, one line each."""
        lines = [
            f"{name} is {COUNTS[name](trace)}, at most {most} in the budget{_named(name, trace)}"
            for name, most in self.most.items()
            if COUNTS[name](trace) > most
        ]
        if self.attention:
            wrong = [site for site in trace.attention if site.kernel not in self.attention]
            for kernel in dict.fromkeys(site.kernel for site in wrong):
                names = joined(site.name or site.node for site in wrong if site.kernel == kernel)
                where = ", ".join(name for name, _ in names)
                lines.append(f"attention is {kernel}, {' or '.join(self.attention)} in the budget: {where}")
        if self.graph and not trace.cuda_graph.capturable:
            lines.append(f"no CUDA graph: {trace.cuda_graph.reason or 'it was not tried'}")
        return lines


def _named(count: str, trace: Trace) -> str:
    names = joined(trace.cpu_nodes) if count == "cpu_nodes" else []
    return f": {', '.join(name for name, _ in names)}" if names else ""
